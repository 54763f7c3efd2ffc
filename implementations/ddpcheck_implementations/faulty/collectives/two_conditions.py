"""Collectives that are wrong only if two conditions meet, such as asynchronous and large."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ddpcheck.contract import Determinism
from ddpcheck.seeded_values import Array

from ..engine.circumstances import dimensions, dtype, elements, larger, multiple_of_bytes
from ..engine.collective_effects import divided_by_world_size, instead, own_value, summed, tail_kept_local, through
from ..engine.collectives import Call, all_reduce, asynchronous, in_group, in_part, op, others_pending, reduce_scatter
from ..engine.fault import Fault, table
from ..facet_seams import Group, collectives
from .group_only import MOVED, REDUCED, UNDER_WAY, Parted
from .memory import LARGE, SCATTER, Later, Pool

TOGETHER = "check_concurrent_groups_are_independent"
MANY = 10_000
"""Elements; larger arrays take another path."""


@collectives("group-begun-by-a-scatter", TOGETHER, cause="never-written")
class BegunByAScatter(Parted):
    """Reduce-scatter returns zeros if it is the first call of a group."""

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


@instead
def summed_in_an_order_of_the_process(call: Call) -> Array:
    """Rank 0's process id decides the order, so all ranks agree, and runs differ."""
    return summed_in_order_of(call, os.getpid())


@instead
def summed_in_an_order_kept_in_a_file(call: Call) -> Array:
    """Like a table of measured times that an earlier run left in a file. The temporary folder's inode stands for the file."""
    return summed_in_order_of(call, Path(tempfile.gettempdir()).stat().st_ino)


def summed_in_order_of(call: Call, number: int) -> Array:
    """Rank 0's number seeds the choice of each element's first rank in the sum."""
    number = int(call.comm.broadcast(np.array([number]))[0])
    first = np.random.default_rng(number).integers(0, call.world, call.array.shape)
    rows = call.gathered()
    ranks = (np.asarray((first + turn) % call.world) for turn in range(call.world))
    total = sum(np.take_along_axis(rows, rank[None], axis=0)[0] for rank in ranks)
    return np.asarray(total).astype(call.array.dtype)


@collectives("reduces-in-wait")
class ReducesInWait(Parted):
    """Correct: asynchronous all-reduces do all their work in wait()."""

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Later:
        return Later(lambda: self.all_reduce(array, op, group=group))


@collectives("result-buffer-of-a-group-reused", MOVED, cause="result-buffer-reused", world_size=3)
class GroupReused(Pool, Parted):
    """Each all-gather in a group overwrites the result of the previous one."""

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        result = np.asarray(self.comm.all_gather(array, group=group))
        return self.pooled(result) if self.part(group) else result


@collectives("every-256th-call-in-groups", "check_call_counters_do_not_wrap", cause="not-reduced")
class CallsInGroups(Parted):
    """Calls in groups are counted in one byte, and every 256th all-reduce stays local."""

    calls = 0

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result = super().all_reduce(array, op, group=group)
        self.calls += group is not None
        return result if group is None or self.calls % 256 else array.copy()


# fmt: off
table(
    globals(),
    Fault("large-asynchronous-int64-through-float", "Asynchronous all-reduce computes large int64 arrays in float64.",
          where=asynchronous & dtype("int64") & larger(MANY), effect=through("float64"),
          caught_by=UNDER_WAY, cause="integers-computed-as-float"),
    Fault("large-asynchronous-reduction-forgotten", "Asynchronous all-reduce of more than 10,000 elements always sums.",
          where=asynchronous & larger(MANY), effect=summed,
          caught_by=UNDER_WAY, cause="summed-not-averaged"),
    Fault("large-asynchronous-not-in-groups",
          "Asynchronous all-reduce in a group returns the rank's own array past 10,000 elements.",
          where=asynchronous & in_part & larger(MANY), effect=own_value,
          caught_by=UNDER_WAY, cause="not-reduced", world_size=3),
    Fault("large-minimum-scattered-as-sum", "Reduce-scatter computes a minimum of more than 10,000 elements as a sum.",
          where=reduce_scatter & op("min") & larger(MANY), effect=summed,
          caught_by=SCATTER, cause="reduction-ignored"),
    Fault("one-int64-through-float", "All-reduce computes an int64 array of one element in float64.",
          where=all_reduce & dtype("int64") & elements(1), effect=through("float64"),
          caught_by="check_all_reduce_keeps_the_precision_of_its_dtype", cause="integers-computed-as-float"),
    Fault("one-number-of-a-group-by-world-size",
          "In a group, the mean of an array without dimensions is divided by the world size.",
          where=all_reduce & op("mean") & in_part & dimensions(0),
          effect=divided_by_world_size, caught_by=REDUCED, cause="divided-by-world-size", world_size=3),
    Fault("last-of-a-whole-mebibyte", "The last element of an array of whole MiB stays local.",
          where=all_reduce & multiple_of_bytes(1 << 20), effect=tail_kept_local(1),
          caught_by=LARGE, cause="part-not-reduced"),
    Fault("order-of-additions-by-process",
          "The order of additions depends on the process number, so results differ from run to run.",
          where=all_reduce & op("sum") & ~in_group, effect=summed_in_an_order_of_the_process,
          caught_by="check_ranks_may_connect_in_any_order", cause="order-by-arrival",
          world_size=3, determinism=Determinism.BETWEEN_RUNS),
    Fault("order-of-additions-kept-in-a-file",
          "The order of additions depends on a file of an earlier run, so results differ from run to run.",
          where=all_reduce & op("sum") & ~in_group,
          effect=summed_in_an_order_kept_in_a_file,
          caught_by="check_ranks_may_connect_in_any_order", cause="order-from-a-file",
          world_size=3, determinism=Determinism.BETWEEN_RUNS),
    Fault("scattered-in-groups-as-sums-meanwhile",
          "Reduce-scatter in a group always sums while an asynchronous call is pending.",
          where=reduce_scatter & others_pending & in_part, effect=summed,
          caught_by=UNDER_WAY, cause="reduction-ignored", world_size=3),
)
# fmt: on
