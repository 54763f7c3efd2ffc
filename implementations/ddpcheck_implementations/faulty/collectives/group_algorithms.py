"""Collectives with a separate algorithm for groups or asynchronous calls, which is wrong for some layouts, dtypes or values."""

from __future__ import annotations

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.circumstances import dtype, floats
from ..engine.collective_effects import minimum_by_negation, nan_sent_as, sent_as, sent_in_memory_order, through
from ..engine.collectives import all_reduce, asynchronous, in_part, op, reduce_scatter
from ..engine.fault import Fault, table
from ..facet_seams import Group, collectives
from .group_only import MOVED, REDUCED, UNDER_WAY, Parted
from .memory import PRODUCT, Later

nan_is_neutral = sent_as(
    lambda call: np.where(np.isnan(call.array), np.inf if call.op == "min" else -np.inf, call.array).astype(
        call.array.dtype
    ),
)


@collectives("world-all-reduce-ends-group-all-reduce", UNDER_WAY, cause="not-reduced", world_size=3)
class EndedByAll(Parted):
    """An all-reduce over all ranks ends a group's pending all-reduce, whose result is then local."""

    calls = 0

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        self.calls += not self.part(group)
        return super().all_reduce(array, op, group=group)

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Later:
        handle, begun, local = self.comm.all_reduce_async(array, op, group=group), self.calls, array.copy()

        def wait() -> Array:
            result: Array = handle.wait()
            return local if self.part(group) and self.calls != begun else result

        return Later(wait)


# fmt: off
table(
    globals(),
    Fault("scattered-in-groups-in-the-order-of-memory",
          "Reduce-scatter in a group sends elements in memory order, not row by row.",
          where=reduce_scatter & in_part, effect=sent_in_memory_order,
          caught_by=MOVED, cause="sent-by-columns", world_size=3),
    Fault("asynchronous-in-groups-in-the-order-of-memory",
          "Asynchronous all-reduce in a group sends elements in memory order, not row by row.",
          where=asynchronous & in_part, effect=sent_in_memory_order,
          caught_by=UNDER_WAY, cause="permuted", world_size=3),
    Fault("asynchronous-minimum-by-negation",
          "An asynchronous minimum is minus the maximum of the negated array, which is wrong for some integers.",
          where=asynchronous & op("min"), effect=minimum_by_negation,
          caught_by=UNDER_WAY, cause="extreme-by-negation"),
    Fault("minimum-of-groups-by-negation",
          "A group's minimum is minus the maximum of the negated array, which is wrong for some integers.",
          where=all_reduce & op("min") & in_part, effect=minimum_by_negation,
          caught_by=REDUCED, cause="extreme-by-negation", world_size=3),
    Fault("asynchronous-float64-of-groups-in-float32",
          "Asynchronous all-reduce in a group computes float64 arrays in float32.",
          where=asynchronous & in_part & dtype("float64"), effect=through("float32"),
          caught_by=UNDER_WAY, cause="fewer-bits", world_size=3),
    Fault("nan-lost-in-asynchronous-groups", "Asynchronous minimum and maximum in a group ignore NaN.",
          where=asynchronous & in_part & op("min", "max") & floats, effect=nan_is_neutral,
          caught_by="check_nan_propagates_in_minimum_and_maximum", cause="nan-lost", world_size=3),
    Fault("nan-left-out-of-products", "Products replace NaN by 1.",
          where=all_reduce & op("prod") & floats, effect=nan_sent_as(1),
          caught_by=PRODUCT, cause="nan-lost"),
)
# fmt: on
