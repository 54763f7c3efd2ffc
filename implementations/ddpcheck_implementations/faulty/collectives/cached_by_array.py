"""Collectives that cache state by array identity."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..facet_seams import Group, PassThrough, collectives
from .memory import Later

GIVEN_AGAIN = "check_one_array_can_be_passed_to_several_calls"


class ByArray(PassThrough):
    """Caches a value by array identity, as long as the array lives."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.kept: dict[int, Any] = {}

    def first(self, array: Array, made: Any) -> Any:
        """The value cached at the first call with this array."""
        if id(array) not in self.kept:
            self.kept[id(array)] = made
            weakref.finalize(array, self.kept.pop, id(array))
        return self.kept[id(array)]


@collectives("pending-calls-stored-by-array", GIVEN_AGAIN, cause="cached-by-array")
class UnderWayByArray(PassThrough):
    """Pending all-reduces are stored by array identity, so a second call with one array replaces the first."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.under_way: dict[int, Any] = {}

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Any:
        self.under_way[id(array)] = self.comm.all_reduce_async(array, op, group=group)
        return Later(lambda: np.asarray(self.under_way.pop(id(array)).wait()))


@collectives("reduction-cached-by-array", GIVEN_AGAIN, cause="cached-by-array")
class PlanByArray(ByArray):
    """Each array's call is planned once, so a later call with another reduction uses the first reduction."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        return super().all_reduce(array, self.first(array, op), group=group)


@collectives("result-array-cached-by-argument", GIVEN_AGAIN, cause="cached-by-array")
class ResultByArray(ByArray):
    """Each argument has one result array, which the next call with that argument overwrites."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result = super().all_reduce(array, op, group=group)
        kept: Array = self.first(array, result)
        kept[...] = result
        return kept
