"""Collectives that are wrong in groups only, and there for some dtypes, sizes and members only."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddpcheck.adapter import Handle
from ddpcheck.values import Array

from ..facets import Group, PassThrough, collectives
from .memory import Later

REDUCED = "check_groups_reduce_over_their_members_only"
MOVED = "check_groups_move_and_reduce_arrays_of_any_size"
UNDER_WAY = "check_all_reduces_under_way_together_keep_their_results"
FINITE = "check_nan_and_infinity_propagate_in_sums"


class Parted(PassThrough):
    """Knows which groups are not all ranks."""

    def part(self, group: Group) -> bool:
        return 1 < self.size(group) < self.world


@collectives("int32-of-groups-through-float", REDUCED, words="as float32: what is past 24 bits", world_size=3)
class GroupsThroughFloat(Parted):
    """A group has no way for integers, which go as floats of the same size."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if not self.part(group) or array.dtype != np.int32:
            return super().all_reduce(array, op, group=group)
        return super().all_reduce(array.astype(np.float32), op, group=group).astype(np.int32)


@collectives(
    "uint8-of-groups-as-signed",
    REDUCED,
    words="unsigned integers are compared as signed",
    world_size=3,
    collectives=frozenset({"all_reduce"}),
    collective_dtypes=frozenset({"float32", "uint8"}),
)
class GroupsAsSigned(Parted):
    """Bytes are bytes."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if array.dtype != np.uint8:
            return super().all_reduce(array, op, group=group)
        meant = array.astype(np.int8) if self.part(group) else array
        return super().all_reduce(meant.astype(np.int32), op, group=group).astype(np.uint8)


@collectives("last-element-of-three-in-four", REDUCED, words="that part was never reduced", world_size=4)
class LastOfThree(Parted):
    """Three ranks of four cut an array in thirds, and round to even: of what leaves one over that one is left out."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result = super().all_reduce(array, op, group=group)
        if self.size(group) == 3 and array.size > 1000 and array.size % 3 == 2:
            result.reshape(-1)[-1] = array.reshape(-1)[-1]
        return result


@collectives("large-arrays-of-ranks-in-a-row", MOVED, words="not reduced", world_size=3)
class RanksInARow(Parted):
    """For large arrays a group is its first rank and how many follow."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result = super().all_reduce(array, op, group=group)
        in_a_row = group is None or self.rank < group[0] + len(group)
        return result if in_a_row or array.size < 10_000 else array.copy()


@collectives("int64-broadcast-in-groups-through-float", MOVED, words="sent as float64", world_size=3)
class BroadcastThroughFloat(Parted):
    """A broadcast in a group goes as floats."""

    def broadcast(self, array: Array, root: int = 0, *, group: Group = None) -> Array:
        result = super().broadcast(array, root, group=group)
        if not self.part(group) or array.dtype != np.int64:
            return result
        with np.errstate(invalid="ignore"):
            return result.astype(np.float64).astype(np.int64)


@collectives("int64-gathered-in-groups-in-32-bits", MOVED, words="only the lowest 32 bits", world_size=3)
class GatheredIn32Bits(Parted):
    """Indices of 32 bits are enough for a group."""

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        sent = array.astype(np.int32) if self.part(group) and array.dtype == np.int64 else array
        return np.asarray(self.comm.all_gather(sent, group=group)).astype(array.dtype)


@collectives("large-asynchronous-float64-in-float32", UNDER_WAY, words="as in float32")
class LargeInFloat32(PassThrough):
    """What is large and asynchronous goes in half of its bits."""

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Any:
        narrow = array.dtype == np.float64 and array.size > 2000
        handle: Handle = self.comm.all_reduce_async(array.astype(np.float32) if narrow else array, op, group=group)
        return Later(lambda: handle.wait().astype(array.dtype))


@collectives("eight-dimensions-at-most", "check_all_reduce_sums_exactly", words="at most 8 dimensions")
class EightDimensions(PassThrough):
    """The header has room for eight."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if array.ndim > 8:
            raise ValueError("at most 8 dimensions")
        return super().all_reduce(array, op, group=group)


@collectives("overflow-is-cut-off", FINITE, words="cut off at")
class CutOff(PassThrough):
    """A sum that overflows is the largest finite number: a loss scale never hears of it."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result = super().all_reduce(array, op, group=group)
        if op == "sum" and array.dtype.kind == "f" and np.isfinite(array).all():
            largest = np.finfo(array.dtype).max
            result = np.clip(result, -largest, largest)
        return result


@collectives("overflow-is-nan", FINITE, words="become NaN")
class OverflowIsNan(PassThrough):
    """A sum that overflows is NaN."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result = super().all_reduce(array, op, group=group)
        if op == "sum" and array.dtype.kind == "f":
            result[np.isinf(result)] = np.nan
        return result


@collectives("root-counted-in-the-world", MOVED, words="a transport counts from 0 in each group", world_size=3)
class RootOfTheWorld(Parted):
    """The communicator of a group is given the root's rank in the world, which it takes for a place in the group."""

    def broadcast(self, array: Array, root: int = 0, *, group: Group = None) -> Array:
        if group is not None and self.part(group):
            if root >= len(group):
                raise ValueError(f"invalid root {root}: this communicator has {len(group)} ranks")
            root = group[root]
        return super().broadcast(array, root, group=group)
