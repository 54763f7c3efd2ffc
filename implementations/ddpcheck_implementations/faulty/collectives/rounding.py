"""Means and sums that lose at the edges of a dtype."""

from __future__ import annotations

import numpy as np

from ddpcheck.values import Array

from ..facets import Group, PassThrough, collectives

ONCE = "check_float16_is_rounded_once"
TINY = "check_tiny_values_do_not_vanish"
NARROW = frozenset({"float16", "float32", "float64"})


@collectives(
    "per-hop-rounding",
    "NVIDIA/Megatron-LM#6199, ROCm/rocm-systems#11661",
    ONCE,
    words="rounding allows",
    world_size=3,
    collective_dtypes=NARROW,
    rounds_float16_once=True,
)
class RoundsAtEveryHop(PassThrough):
    """Partial sums go round the ring in float16, and every addition rounds (NumPy has no bfloat16)."""


@collectives(
    "fp16-predivide-underflow",
    "horovod/horovod#278, pytorch/pytorch#78774",
    TINY,
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
    "classic",
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


@collectives("subnormals-flushed", "classic", TINY, words="is taken for zero", keeps_tiny_values=True)
class FlushesSubnormals(PassThrough):
    """Results smaller than the smallest normal number become zero, as on a processor in a fast mode."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result = super().all_reduce(array, op, group=group)
        if array.dtype.kind == "f":
            result[np.abs(result) < np.finfo(array.dtype).tiny] = 0
        return result
