"""Replicas that count steps or backwards in too few bits, and float16 sums that overflow."""

from __future__ import annotations

import numpy as np

from ddpcheck.seeded_values import Array

from ..base import Counting, PlainReplica, fault
from .compressed import as_float16

LATER = "check_gradients_stay_exact_after_many_backwards"
STEPS = "check_258_steps_move_parameters_alike"
FITS = "check_float16_mean_fits_where_its_sum_does_not"


@fault("step-counter-of-one-byte", STEPS, cause="steps-lost")
class StepCounterWraps(PlainReplica):
    """Steps are counted in one byte, and step 0 moves no parameter."""

    steps = 0

    def step(self) -> None:
        self.steps = (self.steps + 1) % 256
        if self.steps:
            super().step()


@fault("message-number-of-one-byte", LATER, STEPS, cause="not-reduced")
class MessageNumberWraps(Counting):
    """Messages are numbered in one byte, and every 256th backward stays local."""

    def reduce(self, name: str, gradient: Array) -> Array:
        mean = super().reduce(name, gradient)
        return gradient if self.backwards % 256 == 0 else mean


@fault("backward-number-of-two-bytes", STEPS, cause="updated-by-own-gradient", deep=True)
class BackwardNumberWraps(Counting):
    """Backwards are numbered in two bytes, and every 65,536th stays local."""

    def reduce(self, name: str, gradient: Array) -> Array:
        mean = super().reduce(name, gradient)
        return gradient if self.backwards % (1 << 16) == 0 else mean


@fault("float16-summed-then-divided", FITS, cause="float16-sum-overflows", reduction_dtype="float16")
class SummedThenDivided(PlainReplica):
    """Gradients are summed in float16 before the division, so a large sum overflows."""

    def reduce(self, name: str, gradient: Array) -> Array:
        with np.errstate(over="ignore"):
            total = as_float16(np.asarray(self.comm.all_reduce(as_float16(gradient))))
            return np.asarray(total / self.world, gradient.dtype)


@fault("float16-clamped-at-its-end", FITS, cause="float16-sum-overflows", reduction_dtype="float16")
class Clamped(PlainReplica):
    """A float16 sum that overflows becomes the largest finite number."""

    def reduce(self, name: str, gradient: Array) -> Array:
        largest = float(np.finfo(np.float16).max)
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.asarray(self.comm.all_reduce(as_float16(gradient)))
            held = as_float16(np.where(np.isfinite(total), np.clip(total, -largest, largest), total))
            return np.asarray(as_float16(held / self.world), gradient.dtype)


# ------------------------------------------------------------------------------------------------- correct, but unusual


@fault("float16-summed-in-float32", reduction_dtype="float16")
class SummedWider(PlainReplica):
    """Correct: gradients are sent as float16 and summed in float32."""

    def reduce(self, name: str, gradient: Array) -> Array:
        total = np.asarray(self.comm.all_reduce(as_float16(gradient)))
        return np.asarray(as_float16(total / self.world), gradient.dtype)
