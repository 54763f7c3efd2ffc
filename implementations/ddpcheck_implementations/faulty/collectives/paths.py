"""Collectives that are right on the usual path, and wrong on one that few tests take."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import sleep
from typing import Any

import numpy as np

from ddpcheck.values import Array

from ..facets import Group, PassThrough, collectives
from .collectives import BITS, BROADCAST, MINIMUM, NAN, PRODUCT, REAL
from .memory import Later

EVERY_SIZE = "check_collectives_of_every_size_are_right"
CALLS = "check_the_257th_call_is_as_the_first"
IN_GROUPS = "check_groups_move_and_reduce_arrays_of_any_size"
LARGE = 1 << 16


@collectives("medium-sizes-not-reduced", EVERY_SIZE, words="own local value")
class MediumForgotten(PassThrough):
    """Between the path for small arrays, below 40 KiB, and that for large ones, from 60 KiB, there is none."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result = super().all_reduce(array, op, group=group)
        return array.copy() if 40 * 1024 < array.nbytes < 60 * 1024 else result


@collectives("call-counter-of-one-byte", CALLS)
class CountsInOneByte(PassThrough):
    """Gathered arrays are kept by the number of the call, in one byte: the 257th call finds the first one's."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.kept: dict[tuple[int, str], Array] = {}
        self.calls = 0

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        self.calls = (self.calls + 1) % 256
        result = self.comm.all_gather(array, group=group)
        kept = self.kept.setdefault((self.calls, str((result.shape, result.dtype))), result)
        return kept.copy()


@collectives("group-root-is-an-index", IN_GROUPS, world_size=3)
class RootIsIndex(PassThrough):
    """The root of a broadcast in a group is taken for a place in the group, not for a rank."""

    def broadcast(self, array: Array, root: int = 0, *, group: Group = None) -> Array:
        return super().broadcast(array, root if group is None else group[root % len(group)], group=group)


@collectives("large-gathers-in-own-order", IN_GROUPS, words="stand in the order of rank", world_size=3)
class LargeGathered(PassThrough):
    """Large arrays gathered in a group begin with the rank's own."""

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        result: Array = self.comm.all_gather(array, group=group)
        own = 0 if group is None or array.nbytes <= LARGE else list(group).index(self.rank)
        return np.roll(result, -own, axis=0)


@collectives("large-sums-in-own-order", BITS, seen_in=("NVIDIA/nccl#157",), words="in the last bits", world_size=3)
class LargeOwnOrder(PassThrough):
    """Every rank begins the sum of a large array with its own."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if op != "sum" or array.nbytes <= LARGE:
            return super().all_reduce(array, op, group=group)
        rows = np.roll(self.comm.all_gather(array, group=group), -self.rank, axis=0)
        return np.asarray(sum(rows)).astype(array.dtype)


@collectives("large-low-bits-dropped", REAL, seen_in=("NVIDIA/Megatron-LM#6199",), words="rounding allows")
class LargeLowBits(PassThrough):
    """Large arrays are computed in a mode that keeps 19 of float32's 24 bits."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result = super().all_reduce(array, op, group=group)
        if result.dtype == np.float32 and array.nbytes > LARGE:
            result.view(np.uint32)[...] &= np.uint32(0xFFFFFFE0)
        return result


@collectives("nan-lost-in-reduce-scatter", NAN, seen_in=("ml-explore/mlx#4072",), words="NaN is lost")
class ScatterLosesNaN(PassThrough):
    """Reduce-scatter has a minimum and maximum of its own, by comparison."""

    def reduce_scatter(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if op not in ("min", "max"):
            return np.asarray(self.comm.reduce_scatter(array, op, group=group))
        (result, *others), ranks = self.comm.all_gather(array, group=group), list(group or range(self.world))
        for other in others:
            result = np.where(other < result if op == "min" else other > result, other, result)
        return np.asarray(np.split(result, len(ranks))[ranks.index(self.rank)])


@collectives("nan-lost-in-matrices", "check_nan_and_infinity_propagate_in_sums", words="a NaN is lost", world_size=3)
class MatricesLoseNaN(PassThrough):
    """What has rows is cleaned row by row before it is added up; a vector is not."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if array.ndim > 1 and op == "sum" and array.dtype.kind == "f":
            array = np.nan_to_num(array, nan=0, posinf=np.inf, neginf=-np.inf)
        return super().all_reduce(array, op, group=group)


@collectives("async-sum-in-own-order", BITS, words="in the last bits", world_size=3)
class AsyncOwnOrder(PassThrough):
    """An asynchronous sum begins with the rank's own array."""

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Any:
        if op != "sum":
            return self.comm.all_reduce_async(array, op, group=group)
        rows = np.roll(self.comm.all_gather(array, group=group), -self.rank, axis=0)
        return Later(lambda: np.asarray(sum(rows)).astype(array.dtype))


@collectives("minimum-by-negation", MINIMUM, words="found by negation")
class MinimumByNegation(PassThrough):
    """The minimum is minus the maximum of what is negated, which the lowest integer cannot be."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if op != "min" or array.dtype.kind != "i":
            return super().all_reduce(array, op, group=group)
        return -super().all_reduce(-array, "max", group=group)


@collectives("integer-product-in-float64", PRODUCT, words="as float64")
class ProductInFloat64(PassThrough):
    """Products are computed in float64, whatever the dtype."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        given = array.astype(np.float64) if op == "prod" and array.dtype == np.int64 else array
        return super().all_reduce(given, op, group=group).astype(array.dtype)


@collectives("root-sends-after-return", BROADCAST)
class SendsAfterReturn(PassThrough):
    """The root's broadcast returns at once, and its array is sent a moment later."""

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


@collectives("int64-minimum-starts-from-int32", MINIMUM, words="the largest int32")
class StartsFromInt32(PassThrough):
    """The accumulator of a minimum of int64 is filled with the largest number of 32 bits."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result = super().all_reduce(array, op, group=group)
        return np.minimum(result, 2**31 - 1) if op == "min" and array.dtype == np.int64 else result
