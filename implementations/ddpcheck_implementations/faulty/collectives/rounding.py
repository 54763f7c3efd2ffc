"""Means and sums that lose values at the limits of a dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.circumstances import Circumstance, floats
from ..engine.collective_effects import giving, instead, sending
from ..engine.collectives import Call, all_reduce, op
from ..engine.fault import Fault, table
from ..facet_seams import Group, PassThrough, collectives
from .memory import Later

ONCE = "check_float16_is_rounded_once"
RANGE = "check_float16_intermediate_sums_do_not_overflow"
TINY = "check_smallest_values_are_not_flushed_to_zero"
NARROW = frozenset({"float16", "float32", "float64"})


@collectives(
    "per-hop-rounding",
    ONCE,
    seen_in=("NVIDIA/Megatron-LM#6199", "ROCm/rocm-systems#11661"),
    cause="last-bits-wrong",
    world_size=3,
    dtypes=NARROW,
    rounds_float16_once=True,
)
class RoundsAtEveryHop(PassThrough):
    """A ring all-reduce rounds the partial sum to float16 at every hop."""


class InFloat32(PassThrough):
    """Adds float16 arrays in float32. finished() rounds sums and means."""

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
    with np.errstate(over="ignore"):  # overflow to infinity is intended
        return np.asarray(array, np.float16)


@collectives(
    "halved-after-rounding",
    RANGE,
    cause="overflows-before-division",
    dtypes=NARROW,
    rounds_float16_once=True,
)
class HalvedAfterRounding(InFloat32):
    """A float16 mean rounds the sum before it divides by a power of two, so a large sum becomes infinite."""

    def finished(self, total: Array, op: str, size: int) -> Array:
        if op == "mean" and size & (size - 1) == 0:
            return np.asarray(_rounded(total) / np.float16(size), np.float16)
        return super().finished(total, op, size)


@collectives(
    "overflow-of-a-partial-sum-stays",
    RANGE,
    cause="overflows-on-the-way",
    world_size=3,
    dtypes=NARROW,
    rounds_float16_once=True,
)
class InfiniteOnceItWas(InFloat32):
    """A float16 sum becomes infinite for good once a partial sum exceeds the range of float16."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if op != "sum" or array.dtype != np.float16:
            return super().all_reduce(array, op, group=group)
        total, *others = self.comm.all_gather(array.astype(np.float32), group=group)
        for each in others:
            total = total + each
            total = np.where(np.isinf(_rounded(total)), np.copysign(np.float32(np.inf), total), total)
        return self.finished(total, op, self.size(group))


@sending
def divided_before_the_sum(call: Call) -> Call:
    """The sum cannot overflow, but tiny values become zero."""
    return call.changed(array=np.asarray(call.array / call.size, call.array.dtype), op="sum")


@instead
def times_a_narrow_reciprocal(call: Call) -> Array:
    """The sum has all bits, and is multiplied by the number of ranks' reciprocal in float32."""
    return np.asarray(call.changed(op="sum").run() * float(np.float32(1 / call.size)), call.array.dtype)


@giving
def rounded_down(call: Call, result: Array) -> Array:
    return np.floor(result)


@instead
def mean_of_the_ranks_so_far(call: Call) -> Array:
    """Each array moves the mean by (array - mean) / count, and infinity - infinity is NaN."""
    mean, *others = call.gathered().astype(np.float64)
    with np.errstate(all="ignore"):
        for count, other in enumerate(others, start=2):
            mean = mean + (other - mean) / count
        return np.asarray(mean, call.array.dtype)


without_dimensions = Circumstance("no dimension", lambda call: not call.array.ndim)


@giving
def subnormals_flushed(call: Call, result: Array) -> Array:
    result[np.abs(result) < np.finfo(call.array.dtype).tiny] = 0
    return result


# fmt: off
table(
    globals(),
    Fault("fp16-predivide-underflow", "A mean divides before the sum, so tiny values become 0.",
          where=all_reduce & op("mean"), effect=divided_before_the_sum,
          caught_by=TINY, cause="tiny-divided-first", seen_in=("horovod/horovod#278", "pytorch/pytorch#78774"),
          dtypes=NARROW, keeps_tiny_values=True),
    Fault("reciprocal-in-float32", "A mean in float64 is the sum times the number of ranks' reciprocal in float32.",
          where=all_reduce & op("mean") & floats, effect=times_a_narrow_reciprocal,
          caught_by=("check_all_reduce_keeps_the_precision_of_its_dtype", "check_all_reduce_gives_the_exact_mean"),
          cause="fewer-bits", world_size=3),
    Fault("floats-rounded-down", "Sums and means of floats are rounded down to whole numbers.",
          where=all_reduce & op("sum", "mean") & floats, effect=rounded_down,
          caught_by="check_all_reduce_of_real_values_is_within_rounding", cause="rounded-to-whole-numbers"),
    Fault("mean-that-runs", "A mean is updated rank by rank, so infinities turn into NaN.",
          where=all_reduce & op("mean"), effect=mean_of_the_ranks_so_far,
          caught_by="check_nan_and_infinity_propagate_in_sums", cause="infinity-becomes-nan", world_size=3),
    Fault("mean-of-numbers-that-runs", "A mean of arrays without dimensions is updated rank by rank.",
          where=all_reduce & op("mean") & without_dimensions, effect=mean_of_the_ranks_so_far,
          caught_by="check_nan_and_infinity_propagate_in_sums", cause="infinity-becomes-nan"),
    Fault("subnormals-flushed", "All-reduce replaces subnormal results by 0.",
          where=all_reduce & floats, effect=subnormals_flushed,
          caught_by=TINY, cause="subnormals-flushed", keeps_tiny_values=True),
)
# fmt: on
