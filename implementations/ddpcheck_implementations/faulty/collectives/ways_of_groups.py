"""Collectives of which groups, or asynchronous calls, have a way of their own: wrong for a layout, a dtype or a value there,
or once another call comes between.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ddpcheck.adapter import Handle
from ddpcheck.values import Array

from ..facets import Group, PassThrough, collectives
from .in_groups import MOVED, REDUCED, UNDER_WAY, Parted
from .memory import PRODUCT, Later

BY_NEGATION = "it is found by negation"
NAN_LOST = "a NaN is lost"


def _as_it_lies(array: Array) -> Array:
    return array.ravel(order="K").reshape(array.shape)


@collectives("scattered-in-groups-in-the-order-of-memory", MOVED, words="as it lies in memory", world_size=3)
class ScattersTransposed(Parted):
    """Only the reduce-scatter of all ranks makes an array contiguous first."""

    def reduce_scatter(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        sent = _as_it_lies(array) if self.part(group) else array
        return np.asarray(self.comm.reduce_scatter(sent, op, group=group))


@collectives(
    "asynchronous-in-groups-in-the-order-of-memory",
    UNDER_WAY,
    words="in other places",
    world_size=3,
)
class UnderWayTransposed(Parted):
    """Only what is asynchronous, and in a group, is sent as it lies in memory."""

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Handle:
        sent = _as_it_lies(array) if self.part(group) else array
        handle: Handle = self.comm.all_reduce_async(sent, op, group=group)
        return handle


@collectives("asynchronous-minimum-by-negation", UNDER_WAY, words=BY_NEGATION)
class NegatedUnderWay(PassThrough):
    """Only a maximum can be asynchronous: a minimum is that of what is negated."""

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Any:
        if op != "min":
            return self.comm.all_reduce_async(array, op, group=group)
        handle = self.comm.all_reduce_async(-array, "max", group=group)
        return Later(lambda: np.asarray(-np.asarray(handle.wait())))


@collectives("minimum-of-groups-by-negation", REDUCED, words=BY_NEGATION, world_size=3)
class NegatedInGroups(Parted):
    """So it is in groups."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if op != "min" or not self.part(group):
            return super().all_reduce(array, op, group=group)
        return np.asarray(-super().all_reduce(-array, "max", group=group))


@collectives("call-of-all-ends-that-of-a-group", UNDER_WAY, words="not reduced", world_size=3)
class EndedByAll(Parted):
    """What all ranks reduce takes the place of what a group has under way."""

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


@collectives("asynchronous-float64-of-groups-in-float32", UNDER_WAY, words="as in float32", world_size=3)
class NarrowUnderWay(Parted):
    """What is asynchronous, and in a group, has no more than 32 bits."""

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Any:
        if not self.part(group) or array.dtype != np.float64:
            return self.comm.all_reduce_async(array, op, group=group)
        handle = self.comm.all_reduce_async(array.astype(np.float32), op, group=group)
        return Later(lambda: np.asarray(handle.wait()).astype(np.float64))


@collectives(
    "nan-lost-in-asynchronous-groups",
    "check_nan_propagates_in_minimum_and_maximum",
    words=NAN_LOST,
    world_size=3,
)
class NaNLostUnderWay(Parted):
    """The comparisons of what is asynchronous, and in a group, pass over NaN."""

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Handle:
        least = {"min": np.inf, "max": -np.inf}.get(op)
        if self.part(group) and least is not None and array.dtype.kind == "f":
            array = np.where(np.isnan(array), least, array).astype(array.dtype)
        handle: Handle = self.comm.all_reduce_async(array, op, group=group)
        return handle


@collectives("nan-left-out-of-products", PRODUCT, words=NAN_LOST)
class NaNLeftOut(PassThrough):
    """A factor that is no number counts as 1."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if op == "prod" and array.dtype.kind == "f":
            array = np.where(np.isnan(array), 1, array).astype(array.dtype)
        return super().all_reduce(array, op, group=group)
