"""Collectives that are wrong with two things together: asynchronous and large, in a group and first, or often, called."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ddpcheck.values import Array

from ..facets import Group, collectives
from .in_groups import MOVED, REDUCED, UNDER_WAY, Parted
from .memory import LARGE, SCATTER, Later, Pool
from .pending import Pending

TOGETHER = "check_groups_at_work_together_do_not_disturb_each_other"
MANY = 10_000
"""Elements past which there is another way."""


@collectives("group-begun-by-a-scatter", TOGETHER, words="never written")
class BegunByAScatter(Parted):
    """A group is made by its first call, which is of no effect if that is a reduce-scatter."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.begun: set[tuple[int, ...]] = set()

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        self.begun.add(tuple(group or ()))
        return super().all_reduce(array, op, group=group)

    def reduce_scatter(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result = np.asarray(self.comm.reduce_scatter(array, op, group=group))
        first = self.size(group) > 1 and group is not None and tuple(group) not in self.begun
        self.begun.add(tuple(group or ()))
        return np.zeros_like(result) if first else result


@collectives("large-asynchronous-int64-through-float", UNDER_WAY, words="what is past 53 bits is lost")
class LargeIntegersUnderWay(Parted):
    """What is large and asynchronous goes as floats."""

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Later:
        wide = array.dtype == np.int64 and array.size > MANY
        handle = self.comm.all_reduce_async(array.astype(np.float64) if wide else array, op, group=group)
        return Later(lambda: np.asarray(handle.wait()).astype(array.dtype))


@collectives("large-asynchronous-reduction-forgotten", UNDER_WAY, words="summed, not averaged")
class LargeAlwaysSummed(Parted):
    """What is large and asynchronous is always summed."""

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Any:
        return self.comm.all_reduce_async(array, "sum" if array.size > MANY else op, group=group)


@collectives("large-asynchronous-not-in-groups", UNDER_WAY, words="not reduced", world_size=3)
class LargeNotInGroups(Parted):
    """What is large and asynchronous is not reduced in groups."""

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Any:
        if self.part(group) and array.size > MANY:
            return Later(array.copy)
        return self.comm.all_reduce_async(array, op, group=group)


@collectives("reduces-in-wait")
class ReducesInWait(Parted):
    """Correct, but unusual: nothing is under way, the reduction is done in wait()."""

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Later:
        return Later(lambda: self.all_reduce(array, op, group=group))


@collectives("large-minimum-scattered-as-sum", SCATTER, words="it is the block of the sum")
class LargeMinimumScattered(Parted):
    """Large arrays are scattered as sums."""

    def reduce_scatter(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        return np.asarray(
            self.comm.reduce_scatter(array, "sum" if array.size > MANY and op == "min" else op, group=group)
        )


@collectives(
    "one-int64-through-float",
    "check_all_reduce_keeps_the_precision_of_its_dtype",
    words="what is past 53 bits is lost",
)
class OneThroughFloat(Parted):
    """A single number has a way of its own: as a Python float."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if array.dtype != np.int64 or array.size != 1:
            return super().all_reduce(array, op, group=group)
        return super().all_reduce(array.astype(np.float64), op, group=group).astype(array.dtype)


@collectives("result-buffer-of-a-group-reused", MOVED, words="overwritten by a later operation", world_size=3)
class GroupReused(Pool, Parted):
    """The next gathering in a group writes into the result of the one before."""

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        result = np.asarray(self.comm.all_gather(array, group=group))
        return self.pooled(result) if self.part(group) else result


@collectives("one-number-of-a-group-by-world-size", REDUCED, words="divided by the world size", world_size=3)
class OneNumberByWorld(Parted):
    """The mean of a number over a group divides by the number of all ranks."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result = super().all_reduce(array, op, group=group)
        if op != "mean" or array.ndim or not self.part(group):
            return result
        return np.asarray(result * self.size(group) / self.world).astype(array.dtype)


@collectives("every-256th-call-in-groups", "check_the_257th_call_is_as_the_first", words="not reduced")
class CallsInGroups(Parted):
    """Calls in groups are counted in a byte, of which 0 means that there is none."""

    calls = 0

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result = super().all_reduce(array, op, group=group)
        self.calls += group is not None
        return result if group is None or self.calls % 256 else array.copy()


@collectives("last-of-a-whole-mebibyte", LARGE, words="hold this rank's own local value")
class LastOfAMebibyte(Parted):
    """Chunks of a MiB: what fills the last one to its end loses an element."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result = super().all_reduce(array, op, group=group)
        if array.nbytes and array.nbytes % (1 << 20) == 0:
            result.reshape(-1)[-1] = array.reshape(-1)[-1]
        return result


@collectives(
    "order-of-additions-by-process",
    "check_ranks_may_come_in_any_order",
    words="other bits",
    world_size=3,
    same_bits_in_every_run=True,
)
class OrderByProcess(Parted):
    """Which rank comes first in the sum of an element follows from a process's number: alike on all ranks, in no two runs."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if op != "sum" or group is not None:
            return super().all_reduce(array, op, group=group)
        process = int(self.comm.broadcast(np.array([os.getpid()]))[0])
        first = np.random.default_rng(process).integers(0, self.world, array.shape)
        rows = self.comm.all_gather(array)
        ranks = (np.asarray((first + turn) % self.world) for turn in range(self.world))
        return np.asarray(sum(np.take_along_axis(rows, rank[None], axis=0)[0] for rank in ranks)).astype(array.dtype)


@collectives("scattered-in-groups-as-sums-meanwhile", UNDER_WAY, words="block of the sum", world_size=3)
class ScatteredAsSumsMeanwhile(Pending, Parted):
    """While something is under way a group's blocks come from a second communicator, which only sums."""

    def reduce_scatter(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        summed = self.pending and self.part(group)
        return np.asarray(self.comm.reduce_scatter(array, "sum" if summed else op, group=group))
