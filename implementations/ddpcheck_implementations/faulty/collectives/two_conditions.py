"""Collectives that are wrong with two things together: asynchronous and large, in a group and first, or often, called."""

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
"""Elements past which there is another way."""


@collectives("group-begun-by-a-scatter", TOGETHER, cause="never-written")
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


@instead
def summed_in_an_order_of_the_process(call: Call) -> Array:
    """The first rank in the sum of an element follows from a process's number: alike on all ranks, in no two runs."""
    return summed_in_order_of(call, os.getpid())


@instead
def summed_in_an_order_kept_in_a_file(call: Call) -> Array:
    """As if by a table of measured times, which the first run leaves in the temporary folder: the folder stands for it."""
    return summed_in_order_of(call, Path(tempfile.gettempdir()).stat().st_ino)


def summed_in_order_of(call: Call, number: int) -> Array:
    """The first rank in the sum of an element follows from a number of rank 0."""
    number = int(call.comm.broadcast(np.array([number]))[0])
    first = np.random.default_rng(number).integers(0, call.world, call.array.shape)
    rows = call.gathered()
    ranks = (np.asarray((first + turn) % call.world) for turn in range(call.world))
    total = sum(np.take_along_axis(rows, rank[None], axis=0)[0] for rank in ranks)
    return np.asarray(total).astype(call.array.dtype)


@collectives("reduces-in-wait")
class ReducesInWait(Parted):
    """Correct, but unusual: nothing is under way, the reduction is done in wait()."""

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Later:
        return Later(lambda: self.all_reduce(array, op, group=group))


@collectives("result-buffer-of-a-group-reused", MOVED, cause="result-buffer-reused", world_size=3)
class GroupReused(Pool, Parted):
    """The next gathering in a group writes into the result of the one before."""

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        result = np.asarray(self.comm.all_gather(array, group=group))
        return self.pooled(result) if self.part(group) else result


@collectives("every-256th-call-in-groups", "check_call_counters_do_not_wrap", cause="not-reduced")
class CallsInGroups(Parted):
    """Calls in groups are counted in a byte, of which 0 means that there is none."""

    calls = 0

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result = super().all_reduce(array, op, group=group)
        self.calls += group is not None
        return result if group is None or self.calls % 256 else array.copy()


# fmt: off
table(
    globals(),
    Fault("large-asynchronous-int64-through-float", where=asynchronous & dtype("int64") & larger(MANY), effect=through("float64"),
          caught_by=UNDER_WAY, cause="integers-computed-as-float"),
    Fault("large-asynchronous-reduction-forgotten", where=asynchronous & larger(MANY), effect=summed,
          caught_by=UNDER_WAY, cause="summed-not-averaged"),
    Fault("large-asynchronous-not-in-groups", where=asynchronous & in_part & larger(MANY), effect=own_value,
          caught_by=UNDER_WAY, cause="not-reduced", world_size=3),
    Fault("large-minimum-scattered-as-sum", where=reduce_scatter & op("min") & larger(MANY), effect=summed,
          caught_by=SCATTER, cause="reduction-ignored"),
    Fault("one-int64-through-float", where=all_reduce & dtype("int64") & elements(1), effect=through("float64"),
          caught_by="check_all_reduce_keeps_the_precision_of_its_dtype", cause="integers-computed-as-float"),
    Fault("one-number-of-a-group-by-world-size", where=all_reduce & op("mean") & in_part & dimensions(0),
          effect=divided_by_world_size, caught_by=REDUCED, cause="divided-by-world-size", world_size=3),
    Fault("last-of-a-whole-mebibyte", where=all_reduce & multiple_of_bytes(1 << 20), effect=tail_kept_local(1),
          caught_by=LARGE, cause="part-not-reduced"),
    Fault("order-of-additions-by-process", where=all_reduce & op("sum") & ~in_group, effect=summed_in_an_order_of_the_process,
          caught_by="check_ranks_may_connect_in_any_order", cause="order-by-arrival",
          world_size=3, determinism=Determinism.BETWEEN_RUNS),
    Fault("order-of-additions-kept-in-a-file", where=all_reduce & op("sum") & ~in_group,
          effect=summed_in_an_order_kept_in_a_file,
          caught_by="check_ranks_may_connect_in_any_order", cause="order-from-a-file",
          world_size=3, determinism=Determinism.BETWEEN_RUNS),
    Fault("scattered-in-groups-as-sums-meanwhile", where=reduce_scatter & others_pending & in_part, effect=summed,
          caught_by=UNDER_WAY, cause="reduction-ignored", world_size=3),
)
# fmt: on
