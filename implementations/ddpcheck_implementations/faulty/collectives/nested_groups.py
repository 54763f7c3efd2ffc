"""Reductions in two levels, and groups numbered differently by their members."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..facet_seams import Group, PassThrough, collectives

SUM = "check_all_reduce_sums_exactly"
GROUPS = "check_groups_reduce_over_their_members_only"
TOGETHER = "check_concurrent_groups_are_independent"
ARGUMENTS = "check_collectives_do_not_change_their_arguments"
FOR_EVER = 3600.0


@collectives("hierarchical-no-padding", SUM, seen_in=("horovod/horovod#411",), cause="remainder-wrong", world_size=4)
class TwoLevels(PassThrough):
    """A two-level all-reduce omits the last element of odd sizes, where the buffer keeps old values."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.buffer = np.full(1 << 21, 77, np.uint8)

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if self.world != 4 or group is not None or op != "sum" or array.nbytes > len(self.buffer):
            return super().all_reduce(array, op, group=group)
        result = self.buffer[: array.nbytes].view(array.dtype).copy()
        share, first = array.size // 2, self.rank // 2 * 2
        for half in (0, 1):
            part = array.ravel()[half * share : (half + 1) * share]
            within = self.comm.all_reduce(part, group=(first, first + 1))
            across = (self.rank % 2, self.rank % 2 + 2)
            result[half * share : (half + 1) * share] = self.comm.all_reduce(within, group=across)
        return result.reshape(array.shape)


@collectives(
    "subgroup-created-by-members-only",
    GROUPS,
    seen_in=("pytorch/pytorch#130102",),
    cause="ranks-in-different-operations",
    world_size=3,
)
class NumberedByMembers(PassThrough):
    """Only members number a group, so members with different numbers wait for each other forever."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.numbers: dict[tuple[int, ...], int] = {}

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if group is not None:
            number = self.numbers.setdefault(tuple(group), len(self.numbers))
            if len(set(self.comm.all_gather(np.array([number]), group=group).ravel())) > 1:
                time.sleep(FOR_EVER)
        return super().all_reduce(array, op, group=group)


@collectives("barrier-of-the-group-before", ARGUMENTS, cause="group-kept")
class BarrierOfGroupBefore(PassThrough):
    """A barrier of all ranks waits for the group of the last call that had one."""

    last: Group = None

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        self.last = group or self.last
        return super().all_reduce(array, op, group=group)

    def broadcast(self, array: Array, root: int = 0, *, group: Group = None) -> Array:
        self.last = group or self.last
        return super().broadcast(array, root, group=group)

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        self.last = group or self.last
        return np.asarray(self.comm.all_gather(array, group=group))

    def barrier(self, *, group: Group = None) -> None:
        self.comm.barrier(group=group or self.last)
