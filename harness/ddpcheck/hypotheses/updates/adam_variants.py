"""Hypotheses about an update by Adam: other variants of it, and mistakes in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ...causes import Cause
from ...causes import updates as causes
from ...oracle.bounded_values import Value
from ...oracle.optimizer import Optimizer
from ...seeded_values import Array


def other_adams(name: str, optimizer: Optimizer, before: Array, gradient: Array) -> Iterator[tuple[Cause, Array]]:
    """optimizer: its state in front of the update of `before` by `gradient`; arrays have the ranks as first axis."""
    spec, after = optimizer.spec, optimizer.copy()
    after.step(name, Value(before), Value(gradient))
    m, s = (after.state[f"{name}.{part}"].exact for part in "ms")
    step = after.steps[name]

    def corrections(count: int) -> tuple[float, float]:
        first, second = (1 - beta**count for beta in spec.betas)
        return first, second

    def moved(first: float, second: float, eps: float = spec.eps, squares: Array = s) -> Array:
        return np.asarray(before - spec.lr * (m / first) / (np.sqrt(squares / second) + eps))

    first, second = corrections(step)
    yield causes.BIAS_CORRECTION_MISSING(), moved(1, 1)
    yield causes.EPSILON_HAT(), moved(first, second, spec.eps / np.sqrt(second))
    inside = before - spec.lr * (m / first) / np.sqrt(s / second + spec.eps)
    yield causes.EPS_INSIDE_ROOT(), inside
    yield causes.EPS_FIXED(), moved(first, second, 1e-8)
    if step > 1:
        yield causes.STEPS_FROM_1(), moved(*corrections(1))
    for count in sorted({*optimizer.steps.values()} - {step - 1}):
        yield causes.STEPS_OF_OTHER(), moved(*corrections(count + 1))
    if step > 1:
        one, two = spec.betas
        yield causes.BETA_POWERS_SWAPPED(), moved(1 - two ** (step - 1) * one, 1 - one ** (step - 1) * two)
    ahead = causes.STEP_AHEAD_FROM_START if step == 1 else causes.STEP_AHEAD
    yield ahead(), moved(*corrections(step + 1))
    if step == 1:
        return
    old = {part: optimizer.state[f"{name}.{part}"].exact for part in "ms"}
    for part, which in (("m", "first"), ("s", "second")):
        lost = optimizer.copy()
        lost.state[f"{name}.{part}"] = Value(np.zeros_like(old[part]))
        began = lost.step(name, Value(before), Value(gradient)).exact
        yield causes.MOMENT_LOST(moment=which), began
    crossed = optimizer.copy()
    crossed.state |= {f"{name}.m": Value(old["s"]), f"{name}.s": Value(abs(old["m"]))}
    yield causes.MOMENTS_SWAPPED(), crossed.step(name, Value(before), Value(gradient)).exact
    largest = moved(first, second, squares=np.maximum(old["s"], s))
    yield causes.AMSGRAD(), largest
    for part, which in (("m", "first"), ("s", "second")):
        for dtype, bits in (("float16", 11), ("bfloat16", 8)):
            short = optimizer.copy()
            short.state[f"{name}.{part}"] = Value(_rounded(old[part], bits))
            held = short.step(name, Value(before), Value(gradient)).exact
            yield causes.MOMENT_IN(moment=which, dtype=dtype), held
    if step == 2:  # when the first gradient is still known
        given = old["m"] / (1 - spec.betas[0])
        for betas, kind in (((0.9, 0.999), causes.BETAS_FIXED), (spec.betas[::-1], causes.BETAS_SWAPPED)):
            used = Optimizer(replace(spec, betas=betas), "float64", steps={name: 1})
            used.state = {f"{name}.m": Value((1 - betas[0]) * given), f"{name}.s": Value((1 - betas[1]) * given**2)}
            yield kind(), used.step(name, Value(before), Value(gradient)).exact


def _rounded(array: Array, bits: int) -> Array:
    """Round to a significand of this many bits."""
    significand, exponent = np.frexp(array)
    return np.asarray(np.ldexp(np.rint(significand * 2.0**bits), exponent - bits))
