"""Reductions with wrong terms, groups, comparisons, starts or divisors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.circumstances import Circumstance, dtype, floats, signed_integers
from ..engine.collective_effects import (
    added_up,
    giving,
    instead,
    mean_divided_by,
    sending,
    through,
)
from ..engine.collectives import Call, all_reduce, broadcast, op
from ..engine.fault import Fault, table
from ..facet_seams import Group, PassThrough, collectives
from .collectives import BROADCAST, FINITE, MAXIMUM, MEAN, MINIMUM, PRECISION, REAL, SUM
from .memory import ASYNC, Later

summed = all_reduce & op("sum")
beyond_float32 = Circumstance("numbers that float32 does not hold", lambda call: (np.abs(call.array) > 1e38).any())


@instead
def first_rank_twice(call: Call) -> Array:
    rows = call.gathered()
    return added_up([rows[0], *rows], call.array.dtype)


@instead
def without_the_last_rank(call: Call) -> Array:
    return added_up(call.gathered()[:-1], call.array.dtype)


@instead
def second_rank_in_place_of_the_first(call: Call) -> Array:
    """A received array overwrites a ring buffer before the rank's own array is added."""
    rows = call.gathered()
    return added_up([rows[1], *rows[1:]], call.array.dtype)


@instead
def blocks_of_one_rank_each(call: Call) -> Array:
    """A ring gathers each rank's first block, to which no other rank has added anything."""
    rows = [row.reshape(-1) for row in call.gathered()]
    width = -(-call.array.size // len(rows))
    parts = [row[place * width : (place + 1) * width] for place, row in enumerate(rows)]
    return np.concatenate(parts).reshape(call.array.shape).astype(call.array.dtype)


@sending
def opposite_comparison(call: Call) -> Call:
    return call.changed(op={"min": "max", "max": "min"}[call.op or ""])


@sending
def rooted_at_the_last_rank(call: Call) -> Call:
    return call.changed(root=call.ranks[-1])


@instead
def saturating_sum(call: Call) -> Array:
    limits = np.iinfo(call.array.dtype)
    total = np.asarray(call.gathered().astype(object).sum(axis=0))
    return np.asarray(np.clip(total, limits.min, limits.max)).astype(call.array.dtype)


@instead
def mean_of_halves(call: Call) -> Array:
    """The halves differ in size if the number of ranks is odd."""
    rows, half = call.gathered().astype(np.float64), call.size // 2
    return np.asarray((rows[:half].mean(axis=0) + rows[half:].mean(axis=0)) / 2, call.array.dtype)


@giving
def plus_one(call: Call, result: Array) -> Array:
    """The accumulator starts from 1, as for a product."""
    return np.asarray(result + result.dtype.type(1))


@giving
def negated(call: Call, result: Array) -> Array:
    return np.negative(result)


@giving
def through_float16_if_large(call: Call, result: Array) -> Array:
    """A path for large arrays converts to float16, whose range is too small."""
    with np.errstate(over="ignore"):
        narrow = result.astype(np.float16).astype(result.dtype)
    return narrow if np.isinf(narrow).any() else result


@giving
def scaled_and_unscaled(call: Call, result: Array) -> Array:
    scale = result.dtype.type(49)
    with np.errstate(over="ignore"):
        scaled = result / scale * scale
    return np.where(np.isfinite(scaled), scaled, result)


@collectives("groups-reduce-all-slots", REAL, cause="group-ignored", world_size=3)
class AllSlots(PassThrough):
    """A reduction in a group also sums old arrays of ranks outside the group."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.slots: dict[tuple[Any, ...], Array] = {}

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if op != "sum" or self.size(group) == 1:
            return super().all_reduce(array, op, group=group)
        rows = self.gathered(array, group)
        if group is not None and (held := self.slots.get((rows.shape[1:], rows.dtype))) is not None:
            rows, members = held.copy(), rows
            rows[list(group)] = members
        return added_up(rows, array.dtype)

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Later:
        handle, kept = self.comm.all_reduce_async(array, op, group=group), array.copy()

        def wait() -> Any:
            self.gathered(kept, group)
            return handle.wait()

        return Later(wait)

    def gathered(self, array: Array, group: Group) -> Array:
        rows = np.asarray(self.comm.all_gather(array, group=group))
        if group is None:
            self.slots[rows.shape[1:], rows.dtype] = rows
        return rows


@collectives("buffer-of-the-reduction-under-way", ASYNC, cause="part-of-other-call")
class BufferUnderWay(PassThrough):
    """On the last rank, a new reduction reuses the buffer of a pending one of the same shape and dtype."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.pending: list[Array] = []

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Later:
        latest = self.pending[-1] if self.pending and self.rank == self.world - 1 else array
        alike = op == "sum" and (latest.shape, latest.dtype) == (array.shape, array.dtype)
        handle = self.comm.all_reduce_async(latest if alike else array, op, group=group)
        self.pending.append(array.copy())

        def wait() -> Any:
            self.pending.clear()
            return handle.wait()

        return Later(wait)


# fmt: off
table(
    globals(),
    Fault("first-rank-added-twice", "A sum counts the first rank's array twice.",
          where=summed, effect=first_rank_twice, caught_by=SUM, cause="rank-counted-twice"),
    Fault("last-rank-not-waited-for", "A sum leaves out the last rank's array.",
          where=summed, effect=without_the_last_rank,
          caught_by=SUM, cause="rank-left-out", world_size=3),
    Fault("unsent-array-overwritten", "A sum counts the second rank's array twice and the first rank's not at all.",
          where=summed, effect=second_rank_in_place_of_the_first,
          caught_by=SUM, cause="received-overwrites-unsent", world_size=3),
    Fault("first-blocks-gathered", "A sum holds a block of each rank, to which the other ranks have added nothing.",
          where=summed, effect=blocks_of_one_rank_each,
          caught_by=SUM, cause="blocks-gathered-early", world_size=3),
    Fault("comparison-reversed", "All-reduce computes the maximum for a minimum, and the minimum for a maximum.",
          where=all_reduce & op("min", "max"), effect=opposite_comparison,
          caught_by=(MINIMUM, MAXIMUM), cause="opposite-extreme"),
    Fault("root-is-the-last-rank", "Broadcast ignores the root and always sends the last rank's array.",
          where=broadcast, effect=rooted_at_the_last_rank,
          caught_by=BROADCAST, cause="non-root-takes-part"),
    Fault("integers-saturate-in-sums", "Sums of signed integers stop at the largest value instead of wrapping.",
          where=summed & signed_integers, effect=saturating_sum,
          caught_by=SUM, cause="integers-saturate"),
    Fault("mean-of-two-halves", "A mean averages the means of two halves of the ranks, whose sizes may differ.",
          where=all_reduce & op("mean"), effect=mean_of_halves,
          caught_by=MEAN, cause="mean-of-uneven-means", world_size=3),
    Fault("sums-begin-with-one", "The accumulator of a sum starts from 1.",
          where=summed, effect=plus_one, caught_by=SUM, cause="constant-added"),
    Fault("sums-are-negated", "Sums of floats have the wrong sign.",
          where=summed & floats, effect=negated, caught_by=SUM, cause="wrong-sign"),
    Fault("mean-divided-by-the-cube", "A mean is divided by the cube of the number of ranks.",
          where=all_reduce & op("mean"), effect=mean_divided_by(lambda call: call.size**3),
          caught_by=MEAN, cause="divided-twice-too-often"),
    Fault("mean-multiplied-by-ranks", "A mean is the sum multiplied by the number of ranks.",
          where=all_reduce & op("mean"), effect=mean_divided_by(lambda call: 1 / call.size),
          caught_by=MEAN, cause="multiplied-not-averaged"),
    Fault("broadcast-scaled-and-unscaled",
          "Broadcast divides float32 arrays by 49 and multiplies them again, which changes the last bits.",
          where=broadcast & dtype("float32"), effect=scaled_and_unscaled,
          caught_by=BROADCAST, cause="bits-changed"),
    Fault("large-doubles-through-float32", "Sums of float64 values past the range of float32 are computed in float32.",
          where=summed & dtype("float64") & beyond_float32, effect=through("float32"),
          caught_by=FINITE, cause="summed-as-float32"),
    Fault("large-results-through-float16",
          "If one float32 result is past the range of float16, all are rounded to float16, large ones to infinity.",
          where=all_reduce & dtype("float32"), effect=through_float16_if_large,
          caught_by=PRECISION, cause="overflow-float16"),
)
# fmt: on
