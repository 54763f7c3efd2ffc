"""Means and sums that lose at the edges of a dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddpcheck.values import Array

from ..facets import Group, PassThrough, collectives
from .memory import Later

ONCE = "check_float16_is_rounded_once"
RANGE = "check_float16_leaves_its_range_only_at_the_end"
TINY = "check_tiny_values_do_not_vanish"
UNDIVIDED = "the sum is rounded to float16 before it is divided"
ON_THE_WAY = "the sum of some ranks is rounded to float16 on the way"
NARROW = frozenset({"float16", "float32", "float64"})


@collectives(
    "per-hop-rounding",
    ONCE,
    seen_in=("NVIDIA/Megatron-LM#6199", "ROCm/rocm-systems#11661"),
    words="rounding allows",
    world_size=3,
    collective_dtypes=NARROW,
    rounds_float16_once=True,
)
class RoundsAtEveryHop(PassThrough):
    """Partial sums go round the ring in float16, and every addition rounds (NumPy has no bfloat16)."""


class InFloat32(PassThrough):
    """Sums and means of float16 are added up in float32, and rounded as it is to be seen in finished()."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        return np.asarray(self.all_reduce_async(array, op, group=group).wait())

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Any:
        if op not in ("sum", "mean") or array.dtype != np.float16:
            return self.comm.all_reduce_async(array, op, group=group)
        handle = self.comm.all_reduce_async(array.astype(np.float32), group=group)
        return Later(lambda: self.finished(handle.wait(), op, self.size(group)))

    def reduce_scatter(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if op not in ("sum", "mean") or array.dtype != np.float16:
            return np.asarray(self.comm.reduce_scatter(array, op, group=group))
        total = self.comm.reduce_scatter(array.astype(np.float32), group=group)
        return self.finished(total, op, self.size(group))

    def finished(self, total: Array, op: str, size: int) -> Array:
        return _rounded(total / np.float32(size) if op == "mean" else total)


def _rounded(array: Array) -> Array:
    with np.errstate(over="ignore"):  # an infinity is what is asked for
        return np.asarray(array, np.float16)


@collectives("halved-after-rounding", RANGE, words=UNDIVIDED, collective_dtypes=NARROW, rounds_float16_once=True)
class HalvedAfterRounding(InFloat32):
    """By a power of two any number divides exactly, so the sum may as well be rounded before: if there is room for it."""

    def finished(self, total: Array, op: str, size: int) -> Array:
        if op == "mean" and size & (size - 1) == 0:
            return np.asarray(_rounded(total) / np.float16(size), np.float16)
        return super().finished(total, op, size)


@collectives(
    "infinite-once-it-was",
    RANGE,
    words=ON_THE_WAY,
    world_size=3,
    collective_dtypes=NARROW,
    rounds_float16_once=True,
)
class InfiniteOnceItWas(InFloat32):
    """The sum so far is looked at after each rank: what float16 does not hold is an infinity from there on."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if op != "sum" or array.dtype != np.float16:
            return super().all_reduce(array, op, group=group)
        total, *others = self.comm.all_gather(array.astype(np.float32), group=group)
        for each in others:
            total = total + each
            total = np.where(np.isinf(_rounded(total)), np.copysign(np.float32(np.inf), total), total)
        return self.finished(total, op, self.size(group))


@collectives(
    "fp16-predivide-underflow",
    TINY,
    seen_in=("horovod/horovod#278", "pytorch/pytorch#78774"),
    words="divides before the sum",
    collective_dtypes=NARROW,
    keeps_tiny_values=True,
)
class DividesBefore(PassThrough):
    """Every rank divides before the sum, which keeps that from overflowing: tiny values become zero."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if op != "mean":
            return super().all_reduce(array, op, group=group)
        return super().all_reduce(np.asarray(array / self.size(group), array.dtype), group=group)


@collectives(
    "mean-that-runs",
    "check_nan_and_infinity_propagate_in_sums",
    words="where an infinity should stay one",
    world_size=3,
)
class RunningMean(PassThrough):
    """The mean of the ranks so far moves by its distance from the next: an infinity less an infinity is no number."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if op != "mean":
            return super().all_reduce(array, op, group=group)
        mean, *others = self.comm.all_gather(array, group=group).astype(np.float64)
        with np.errstate(all="ignore"):
            for count, other in enumerate(others, start=2):
                mean = mean + (other - mean) / count
            return np.asarray(mean, array.dtype)


@collectives("subnormals-flushed", TINY, words="is taken for zero", keeps_tiny_values=True)
class FlushesSubnormals(PassThrough):
    """Results smaller than the smallest normal number become zero, as on a processor in a fast mode."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result = super().all_reduce(array, op, group=group)
        if array.dtype.kind == "f":
            result[np.abs(result) < np.finfo(array.dtype).tiny] = 0
        return result
