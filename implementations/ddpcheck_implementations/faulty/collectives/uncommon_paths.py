"""Collectives that are wrong on paths that few tests take."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import sleep
from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.circumstances import bytes_between, dtype, floats, larger_bytes, more_dimensions, signed_integers
from ..engine.collective_effects import (
    gathered_in_own_order,
    giving,
    instead,
    minimum_by_negation,
    nan_sent_as,
    own_value,
    sending,
    summed_in_own_order,
    through,
)
from ..engine.collectives import Call, all_gather, all_reduce, asynchronous, broadcast, in_group, op, reduce_scatter
from ..engine.fault import Fault, table
from ..facet_seams import Group, PassThrough, collectives
from .collectives import BITS, BROADCAST, MINIMUM, NAN, PRODUCT, REAL, compared, low_bits_dropped

EVERY_SIZE = "check_collectives_are_correct_at_every_array_size"
CALLS = "check_call_counters_do_not_wrap"
IN_GROUPS = "check_group_collectives_are_correct_for_any_array"
LARGE = 1 << 16


@sending
def root_is_an_index(call: Call) -> Call:
    assert call.root is not None
    return call.changed(root=call.ranks[call.root % call.size])


@instead
def block_by_comparison(call: Call) -> Array:
    return np.asarray(np.split(compared(call.gathered(), call.op), call.size)[call.place])


@giving
def at_most_int32(call: Call, result: Array) -> Array:
    """The accumulator starts from the largest int32."""
    return np.minimum(result, 2**31 - 1)


@collectives("call-counter-of-one-byte", CALLS)
class CountsInOneByte(PassThrough):
    """Gathered arrays are stored by a one-byte call number, so the 257th call returns the first result."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.kept: dict[tuple[int, str], Array] = {}
        self.calls = 0

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        self.calls = (self.calls + 1) % 256
        result = self.comm.all_gather(array, group=group)
        kept = self.kept.setdefault((self.calls, str((result.shape, result.dtype))), result)
        return kept.copy()


@collectives("root-sends-after-return", BROADCAST)
class SendsAfterReturn(PassThrough):
    """The root's broadcast returns before it has read the array, which the caller may change meanwhile."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.sender = ThreadPoolExecutor(1)

    def broadcast(self, array: Array, root: int = 0, *, group: Group = None) -> Array:
        others = [rank for rank in group or range(self.world) if rank != root]
        if self.rank != root:
            return np.asarray(self.comm.recv(array, root))
        self.sender.submit(self.send_late, array, others)
        return array.copy()

    def send_late(self, array: Array, others: list[int]) -> None:
        sleep(0.003)
        for other in others:
            self.comm.send(array, other)


# fmt: off
table(
    globals(),
    Fault("medium-sizes-not-reduced", "All-reduce of 40 to 60 KiB returns the rank's own array.",
          where=all_reduce & bytes_between(40 * 1024, 60 * 1024), effect=own_value,
          caught_by=EVERY_SIZE, cause="not-reduced"),
    Fault("group-root-is-an-index", "Broadcast in a group takes the root's rank for an index into the group.",
          where=broadcast & in_group, effect=root_is_an_index, caught_by=IN_GROUPS, world_size=3),
    Fault("large-gathers-in-own-order",
          "All-gather in a group returns more than 64 KiB beginning with the rank's own row.",
          where=all_gather & in_group & larger_bytes(LARGE), effect=gathered_in_own_order,
          caught_by=IN_GROUPS, cause="rows-in-wrong-order", world_size=3),
    Fault("large-sums-in-own-order",
          "Sums of more than 64 KiB start with the rank's own array, so the last bits differ between ranks.",
          where=all_reduce & op("sum") & larger_bytes(LARGE), effect=summed_in_own_order,
          caught_by=BITS, cause="last-bits-differ", world_size=3, seen_in=("NVIDIA/nccl#157",)),
    Fault("large-low-bits-dropped", "All-reduce drops the lowest five bits of float32 results of more than 64 KiB.",
          where=all_reduce & dtype("float32") & larger_bytes(LARGE), effect=low_bits_dropped,
          caught_by=REAL, cause="last-bits-wrong", seen_in=("NVIDIA/Megatron-LM#6199",)),
    Fault("nan-lost-in-reduce-scatter",
          "Reduce-scatter uses a plain comparison for minimum and maximum, which loses NaN.",
          where=reduce_scatter & op("min", "max"), effect=block_by_comparison,
          caught_by=NAN, cause="nan-lost", seen_in=("ml-explore/mlx#4072",)),
    Fault("nan-lost-in-matrices", "Sums replace NaN by 0 in arrays of two or more dimensions.",
          where=all_reduce & op("sum") & floats & more_dimensions(1), effect=nan_sent_as(0),
          caught_by="check_nan_and_infinity_propagate_in_sums", cause="nan-lost", world_size=3),
    Fault("async-sum-in-own-order",
          "Asynchronous sums start with the rank's own array, so the last bits differ between ranks.",
          where=asynchronous & op("sum"), effect=summed_in_own_order,
          caught_by=BITS, cause="last-bits-differ", world_size=3),
    Fault("minimum-by-negation",
          "A minimum is minus the maximum of the negated array, which fails for the lowest integer.",
          where=all_reduce & op("min") & signed_integers, effect=minimum_by_negation,
          caught_by=MINIMUM, cause="extreme-by-negation"),
    Fault("integer-product-in-float64", "Products of int64 are computed in float64.",
          where=all_reduce & op("prod") & dtype("int64"), effect=through("float64"),
          caught_by=PRODUCT, cause="integers-computed-as-float"),
    Fault("int64-minimum-starts-from-int32", "The accumulator of an int64 minimum starts from the largest int32.",
          where=all_reduce & op("min") & dtype("int64"), effect=at_most_int32,
          caught_by=MINIMUM, cause="accumulator-starts-from"),
)
# fmt: on
