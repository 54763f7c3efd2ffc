"""Collectives that store blocks, messages or in-place results in a wrong place, or share buffers between two calls."""

from __future__ import annotations

import math
import time
import weakref
from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.circumstances import Circumstance, dtype, elements, larger_bytes
from ..engine.collective_effects import giving, instead, mean_divided_by, sent_as, sent_in_memory_order, summed
from ..engine.collectives import Call, all_gather, all_reduce, in_part, in_place, op, received, reduce_scatter, sent
from ..engine.fault import Fault, table
from ..facet_seams import Group, PassThrough, collectives
from .memory import ASYNC, MESSAGES, SCATTER, Later

IN_PLACE = "check_all_reduce_in_place_is_exact"
LATE = "check_late_ranks_do_not_change_results"
MINIMUM = "check_all_reduce_gives_the_minimum"
FINITE = "check_nan_and_infinity_propagate_in_sums"


class _Given(np.ndarray[Any, np.dtype[Any]]):
    """An array that accepts a finalizer."""


@collectives("memory-given-out-while-in-use", IN_PLACE, cause="empty-given-twice", in_place=True)
class GivenOutAgain(PassThrough):
    """Memory from empty() is reused when its array is deleted, even if a slice of it is still in use."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.free: list[Array] = []

    def empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        size = math.prod(shape) * np.dtype(dtype).itemsize
        fitting = [number for number, block in enumerate(self.free) if block.nbytes >= size]
        block = self.free.pop(fitting[0]) if fitting else np.empty(max(size, 8), np.uint8)
        given = _Given(shape, np.dtype(dtype), block.data)
        weakref.finalize(given, self.free.append, block).atexit = False
        return given


@collectives("in-place-result-at-start-of-memory", IN_PLACE, cause="writes-at-start-of-base", in_place=True)
class AtTheStart(PassThrough):
    """All-reduce in place of a slice writes the result at the start of the underlying memory."""

    def all_reduce_in_place(self, array: Array, op: str = "sum", *, group: Group = None) -> None:
        whole = array if array.base is None else np.asarray(array.base).reshape(-1)
        whole.reshape(-1)[: array.size] = self.all_reduce(array, op, group=group).reshape(-1)


no_power_of_two = Circumstance("no power of two of ranks", lambda call: call.size & (call.size - 1))


def power_of_two(call: Call) -> int:
    """The largest power of two up to the number of ranks."""
    return 1 << call.size.bit_length() - 1


@instead
def block_by_the_last_dimension(call: Call) -> Array:
    """The block begins as if a row had only the last dimension."""
    array, rows = call.array, len(call.array) // call.size
    begin = call.place * rows * (array.shape[-1] if array.ndim > 1 else 1)
    whole = call.changed(kind="all_reduce").run().reshape(-1)
    return np.resize(whole[begin:], array.size // call.size).reshape(rows, *array.shape[1:]).copy()


@instead
def block_at_a_multiple_of_64(call: Call) -> Array:
    """Offsets are rounded up for alignment, and sizes are not."""
    size = call.array.size // call.size
    begin = -(-call.place * size // 64) * 64
    whole = call.changed(kind="all_reduce").run().reshape(-1)
    block = np.zeros(size, call.array.dtype)
    block[: whole.size - begin] = whole[begin : begin + size]
    return block.reshape(-1, *call.array.shape[1:])


@giving
def written_to_a_reshaped_copy(call: Call, result: Array) -> Array:
    """reshape(-1) copies an array that is not contiguous."""
    call.array.reshape(-1)[...] = result.reshape(-1)
    return call.array


@instead
def folded_by_adding(call: Call) -> Array:
    """Ranks past a power of two send their values to other ranks, which add them."""
    rows, half = call.gathered(), power_of_two(call)
    rows[: call.size - half] += rows[half:]
    return np.asarray(rows[:half].min(axis=0) if call.op == "min" else rows[:half].max(axis=0))


@instead
def late_ranks_are_zero(call: Call) -> Array:
    """Ranks more than a third of a second late count as zeros."""
    began = time.monotonic()
    entered = call.changed(array=np.array([began])).run()[:, 0]
    gathered = np.array(call.run())
    gathered[entered > began + 1 / 3] = 0
    return gathered


@collectives("staging-by-bytes", ASYNC, cause="results-mixed-up-as-other-dtype")
class StagedByBytes(PassThrough):
    """Pending results of equally many bytes share one staging buffer, whatever their dtypes."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.latest: dict[int, Any] = {}

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Later:
        own = self.comm.all_reduce_async(array, op, group=group), array.dtype
        self.latest[array.nbytes] = own

        def wait() -> Array:
            handle, dtype = self.latest[array.nbytes]
            chosen = own[0] if dtype == array.dtype else handle
            return np.frombuffer(np.asarray(chosen.wait()).tobytes(), array.dtype).reshape(array.shape).copy()

        return Later(wait)


as_int8 = sent_as(
    lambda call: (call.array.astype(np.int8) if call.op in ("min", "max") else call.array).astype(np.int32),
    lambda call, result: result.astype(np.uint8),
)

# fmt: off
table(
    globals(),
    Fault("block-by-the-last-dimension", "Reduce-scatter computes the block's start from the last dimension alone.",
          where=reduce_scatter, effect=block_by_the_last_dimension,
          caught_by=SCATTER, cause="block-cut-wrong"),
    Fault("large-blocks-at-multiples-of-64", "Blocks of a large reduce-scatter begin at a multiple of 64 elements.",
          where=reduce_scatter & larger_bytes(1 << 17), effect=block_at_a_multiple_of_64,
          caught_by=SCATTER, cause="block-aligned"),
    Fault("received-into-a-copy", "Receive writes into reshape(-1), which is a copy if the array is not contiguous.",
          where=received, effect=written_to_a_reshaped_copy,
          caught_by=MESSAGES, cause="nothing-received"),
    Fault("messages-as-they-lie-in-memory", "Send sends elements in memory order, not row by row.",
          where=sent, effect=sent_in_memory_order,
          caught_by=MESSAGES, cause="sent-by-columns"),
    Fault("scattered-mean-of-a-power-of-two",
          "A reduce-scatter mean is divided by the largest power of two up to the number of ranks.",
          where=reduce_scatter & op("mean"), effect=mean_divided_by(power_of_two),
          caught_by=FINITE, cause="sum-divided-by-other-number", world_size=3),
    Fault("folded-by-adding",
          "If the number of ranks is no power of two, minimum and maximum add the extra ranks' values.",
          where=all_reduce & op("min", "max") & no_power_of_two, effect=folded_by_adding,
          caught_by=MINIMUM, cause="added-not-reduced", world_size=3),
    Fault("late-ranks-are-zeros-in-groups", "All-gather in a group returns zeros for a rank that is a third of a second late.",
          where=all_gather & in_part, effect=late_ranks_are_zero,
          caught_by=LATE, cause="late-rank-missed", world_size=4),
    Fault("uint8-compared-as-int8", "Minimum and maximum compare uint8 as int8.",
          where=all_reduce & dtype("uint8"), effect=as_int8,
          caught_by=MINIMUM, cause="unsigned-as-signed", dtypes=frozenset({"float32", "float64", "uint8"})),
    Fault("one-number-in-place-is-summed", "An in-place product of one element is a sum.",
          where=in_place & op("prod") & elements(1), effect=summed,
          caught_by=IN_PLACE, cause="reduction-ignored", in_place=True),
)
# fmt: on
