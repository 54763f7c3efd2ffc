"""Collectives that send arrays of zeros, or of one number, in a shorter form."""

from __future__ import annotations

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.circumstances import Circumstance
from ..engine.collective_effects import instead, sent_as
from ..engine.collectives import Call, all_gather, all_reduce, broadcast, on_root, op
from ..engine.fault import Fault, table
from ..facet_seams import Group, PassThrough, collectives

HOLDS = "check_collectives_are_correct_for_compressible_arrays"
FEW = 16
"""An array is sent as indices and values if fewer than one element in 16 is nonzero."""


def sparse(array: Array) -> bool:
    """Whether most elements are zero, of either sign."""
    return bool(FEW * np.count_nonzero(array) < array.size > FEW)


def flat(array: Array) -> Array:
    """A copy, row by row."""
    return np.array(array, order="C").reshape(-1)


mostly_zero = Circumstance("mostly zeros on this rank", lambda call: sparse(call.array))


@Circumstance.of
def one_number_at_both_ends(call: Call) -> bool:
    values = flat(call.array)
    return values.size > FEW and values[0] == values[-1] == values[values.size // 2] == values[values.size // 3]


def by_indices_of_16_bits(call: Call) -> Array:
    values = flat(call.array)
    places = np.flatnonzero(values)
    found = np.zeros_like(values)
    found[places.astype(np.uint16)] = values[places]
    return found.reshape(call.array.shape)


def first_nonzeros(call: Call) -> Array:
    """The message has room for one nonzero in 32 elements."""
    values = flat(call.array)
    values[np.flatnonzero(values)[max(1, values.size // 32) :]] = 0
    return values.reshape(call.array.shape)


@instead
def extreme_of_ranks_that_are_not_zero(call: Call) -> Array:
    rows = [row for row in call.gathered() if row.any()]
    extreme = np.minimum if call.op == "min" else np.maximum
    return np.asarray(extreme.reduce(rows, axis=0)) if rows else np.zeros_like(call.array)


@instead
def summed_by_gathering(call: Call) -> Array:
    """The other ranks call all-reduce."""
    return np.asarray(call.gathered().sum(axis=0, dtype=call.array.dtype))


# ------------------------------------------------------------------------------------------------- correct, but unusual


@collectives("zeros-are-left-out-by-agreement")
class LeftOutByAgreement(PassThrough):
    """Correct: if all ranks have mostly zeros, they gather indices and values, then add them up."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        few = sparse(array) and array.dtype.kind == "f" and bool(np.isfinite(array).all())
        count = np.array([np.count_nonzero(array) if few else -1, not few], np.int64)
        most, refused = super().all_reduce(count, "max", group=group).tolist()
        if op != "sum" or refused:
            return super().all_reduce(array, op, group=group)
        values = flat(array)
        places = np.flatnonzero(values)
        sent = np.full(most, -1, np.int64), np.zeros(most, array.dtype)
        sent[0][: len(places)], sent[1][: len(places)] = places, values[places]
        total = np.zeros_like(values)
        all_places, all_values = (self.comm.all_gather(each, group=group) for each in sent)
        for at, numbers in zip(all_places, all_values, strict=True):
            total[at[at >= 0]] += numbers[at >= 0]
        return total.reshape(array.shape)


@collectives("one-number-goes-once")
class OneNumberGoesOnce(PassThrough):
    """Correct: a root whose array holds one value throughout sends that value once."""

    def broadcast(self, array: Array, root: int = 0, *, group: Group = None) -> Array:
        values = flat(array)
        alike = values.size > 0 and values.tobytes() == values[:1].tobytes() * values.size
        if not super().broadcast(np.array([alike], np.int32), root, group=group)[0]:
            return super().broadcast(array, root, group=group)
        return np.resize(super().broadcast(values[:1], root, group=group), array.shape)


# fmt: off
table(
    globals(),
    Fault("indices-of-two-bytes",
          "Mostly-zero arrays are sent as nonzeros with 16-bit indices, which wrap in large arrays.",
          where=all_reduce & mostly_zero, effect=sent_as(by_indices_of_16_bits),
          caught_by=HOLDS, cause="shortened-by-content"),
    Fault("room-for-few-nonzeros",
          "A mostly-zero array is broadcast with room for one nonzero in 32 elements; the rest become 0.",
          where=broadcast & mostly_zero & on_root,
          effect=sent_as(first_nonzeros),
          caught_by=HOLDS, cause="never-written"),
    Fault("equal-ends-sent-as-one-number",
          "All-gather sends one number for the whole array if its first and last elements are equal.",
          where=all_gather & one_number_at_both_ends,
          effect=sent_as(lambda call: np.full_like(call.array, flat(call.array)[0])),
          caught_by=HOLDS, cause="never-written"),
    Fault("ranks-of-zeros-left-out-of-extremes", "Minimum and maximum leave out ranks whose array is all zeros.",
          where=all_reduce & op("min", "max"), effect=extreme_of_ranks_that_are_not_zero,
          caught_by=HOLDS, cause="not-reduced"),
    Fault("each-rank-takes-its-own-way",
          "A rank with a mostly-zero array calls all-gather while other ranks call all-reduce.",
          where=all_reduce & op("sum") & mostly_zero, effect=summed_by_gathering,
          caught_by=HOLDS, cause="path-by-content"),
)
# fmt: on
