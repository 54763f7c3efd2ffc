"""Replicas that send gradients in fewer bits, which is correct only if promised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.models.spec import ModelSpec
from ddpcheck.seeded_values import Array

from ..base import PlainReplica, fault
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.gradients import Gradient, GradientEffect, after_backwards, every_step, giving, sending
from ..engine.replicas import Made, after, around, in_place_of
from .clipping import CLIPPED

EXACT = "check_gradients_equal_the_large_batch_exactly"
REAL = "check_gradients_equal_the_large_batch_within_rounding"
SGD = "check_sgd_matches_one_process"
CUT = "check_gradients_in_fewer_bits_are_not_cut"
ANY = "check_random_training_programs_match_one_process"


def as_float16(array: Array) -> Array:
    with np.errstate(over="ignore"):
        return array.astype(np.float16).astype(np.float32)


def as_bfloat16(array: Array) -> Array:
    """Rounded to nearest, ties to even: bfloat16 is the upper half of a float32."""
    bits = array.astype(np.float32).view(np.uint32)
    even = bits + 0x7FFF + (bits >> 16 & 1)
    return np.asarray(np.where(np.isfinite(array), even & 0xFFFF0000, bits), np.uint32).view(np.float32)


class Compressing(PlainReplica):
    """Every rank divides, rounds and sends its gradient; the sum is rounded as well."""

    def compressed(self, array: Array) -> Array:
        return as_bfloat16(array)

    def reduce(self, name: str, gradient: Array) -> Array:
        total = self.comm.all_reduce(self.compressed(gradient / self.world))
        return np.asarray(self.compressed(total), gradient.dtype)


@fault("rounded-with-an-option", reduction_dtype="bfloat16", numeric_options=frozenset({"bucket_cap_mb"}))
class CompressingWithOption(Compressing):
    """Correct with the promise: gradients are rounded, and the size of buckets has no effect."""

    @classmethod
    def take(cls, options: Mapping[str, Any]) -> None:
        super().take({name: value for name, value in options.items() if name != "bucket_cap_mb"})


@fault("gradients-in-fixed-point", REAL, cause="fixed-point")
class FixedPoint(PlainReplica):
    """Gradients are summed as integers, scaled by the largest element of the model."""

    def synchronise(self, batch_size: int) -> None:
        largest = max((float(np.abs(gradient).max(initial=0.0)) for gradient in self.local.values()), default=0.0)
        self.largest = float(self.comm.all_reduce(np.array(largest), "max"))
        super().synchronise(batch_size)

    def reduce(self, name: str, gradient: Array) -> Array:
        if not 0 < self.largest < 1e30:
            return super().reduce(name, gradient)
        scale = 2.0 ** (40 - np.frexp(self.largest)[1])
        whole = self.comm.all_reduce(np.rint(gradient * scale).astype(np.int64))
        return np.asarray(whole / scale / self.world, gradient.dtype)


@in_place_of("compressed")
def rounded_to_float16(replica: PlainReplica, array: Array) -> Array:
    return as_float16(array)


@in_place_of("compressed")
def cut_to_bfloat16(replica: PlainReplica, array: Array) -> Array:
    """The upper half of each float32, as it is."""
    return (array.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


@around("reduce")
def not_divided(replica: PlainReplica, reduce: Callable[[str, Array], Array], name: str, gradient: Array) -> Array:
    return reduce(name, gradient * replica.world)


@sending
def rounded_to_bfloat16(gradient: Gradient) -> Array:
    """Round before a float32 sum."""
    return as_bfloat16(gradient.array).astype(gradient.array.dtype)


@sending
def rounded_to_8_bits(gradient: Gradient) -> Array:
    """Round to multiples of the largest element / 127."""
    step = float(np.abs(gradient.array).max(initial=0.0)) / 127 or 1.0
    return gradient.cast(np.rint(gradient.array / step) * step)


def low_rank(rank: int) -> GradientEffect:
    """Reduce the mean of each matrix to this rank."""
    return GradientEffect(got=lambda gradient, mean: of_low_rank(mean, rank))


@after("backward")
def accumulated_gradients_compressed(replica: Compressing, batch: Batch) -> None:
    """Small gradients added to large ones are lost."""
    replica.local = {name: np.asarray(replica.compressed(array), array.dtype) for name, array in replica.local.items()}


def of_low_rank(matrix: Array, rank: int = 1) -> Array:
    """The nearest matrix of this rank. Other tensors, and matrices of at most this rank, are unchanged."""
    if matrix.ndim != 2 or np.linalg.matrix_rank(matrix) <= rank:
        return matrix
    left, sizes, right = np.linalg.svd(matrix.astype(np.float64), full_matrices=False)
    return np.asarray(left[:, :rank] * sizes[:rank] @ right[:rank], matrix.dtype)


@fault("power-sgd", SGD, seen_in=("pytorch/pytorch (ddp_comm_hooks, powerSGD_hook)",), cause="low-rank")
class PowerSgd(PlainReplica):
    """From the third step on, gradients are compressed to low rank with error feedback, as in PowerSGD."""

    steps = 0

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self.residuals: dict[str, Array] = {}

    def step(self) -> None:
        super().step()
        self.steps += 1

    def reduce(self, name: str, gradient: Array) -> Array:
        if gradient.ndim != 2 or self.steps < 2:
            return super().reduce(name, gradient)
        whole = gradient + self.residuals.get(name, np.zeros_like(gradient))
        start = np.random.default_rng(0).standard_normal(whole.shape[1])
        left = self.comm.all_reduce(whole @ start)
        left /= float(np.linalg.norm(left)) or 1.0
        made = np.asarray(np.outer(left, self.comm.all_reduce(whole.T @ left) / self.world), gradient.dtype)
        self.residuals[name] = whole - made
        return made


@giving
def mean_in_float16(gradient: Gradient, mean: Array) -> Array:
    return as_float16(mean)


@giving
def largest(gradient: Gradient, mean: Array) -> Array:
    """A maximum over ranks, as for statistics."""
    return np.asarray(gradient.gathered().max(axis=0))


# fmt: off
table(
    globals(),
    Fault("rounded-before-the-sum", "Gradients are rounded to bfloat16 before the sum.",
          where=always, effect=rounded_to_bfloat16,
          caught_by=REAL, cause="rounded-as"),
    Fault("sent-in-8-bits", "Gradients are sent as 8-bit multiples of their largest element.",
          where=always, effect=rounded_to_8_bits, caught_by=REAL, cause="sent-as-int8", world_size=3),
    Fault("of-rank-two", "Each gradient matrix is reduced to rank two.",
          where=always, effect=low_rank(2), caught_by=(EXACT, REAL, SGD), cause="low-rank"),
    Fault("of-rank-one-later", "After ten backwards, each gradient matrix is reduced to rank one.",
          where=after_backwards(10), effect=low_rank(1),
          caught_by=CLIPPED, cause="low-rank", seen_in=("pytorch/pytorch (ddp_comm_hooks, start_powerSGD_iter)",)),
    Fault("compressed-to-bfloat16", "Correct if promised: gradients are sent as bfloat16.",
          where=always, effect=Made(Compressing),
          reduction_dtype="bfloat16"),
    Fault("compressed-to-float16", "Correct if promised: gradients are sent as float16.",
          where=always, effect=rounded_to_float16.of(Compressing),
          reduction_dtype="float16"),
    Fault("cut-to-bfloat16", "Gradients are cut to bfloat16 by a shift of bits, not rounded.",
          where=always, effect=cut_to_bfloat16.of(Compressing),
          caught_by=CUT, cause="cut-not-rounded", reduction_dtype="bfloat16"),
    Fault("compressed-and-summed", "Compressed gradients are summed, not averaged.",
          where=always, effect=not_divided.of(Compressing),
          caught_by=EXACT, cause="summed-not-averaged", reduction_dtype="bfloat16"),
    Fault("float16-for-bfloat16", "Gradients are sent as float16, although bfloat16 is promised.",
          where=always, effect=rounded_to_float16.of(Compressing),
          caught_by=REAL, cause="flushed-to-zero", reduction_dtype="bfloat16"),
    Fault("bfloat16-for-float16", "Gradients are sent as bfloat16, although float16 is promised.",
          where=always, effect=Made(Compressing),
          caught_by=REAL, cause="rounded-as", reduction_dtype="float16"),
    Fault("accumulates-compressed", "Gradients are accumulated in the compressed dtype, so small parts are lost.",
          where=always, effect=accumulated_gradients_compressed.of(Compressing),
          caught_by=ANY, cause="reduction-dtype-is-of-reduction", reduction_dtype="bfloat16"),
    Fault("every-third-step-in-float16", "Every third step uses gradients rounded to float16.",
          where=every_step(3), effect=mean_in_float16,
          caught_by=SGD, cause="update-gradient-float16"),
    Fault("every-third-step-by-the-largest",
          "Every third step uses the largest of the ranks' gradients, not their mean.",
          where=every_step(3), effect=largest,
          caught_by=SGD, cause="updated-by-largest-gradient"),
)
# fmt: on
