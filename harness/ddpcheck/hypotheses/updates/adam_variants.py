"""Hypotheses about an update by Adam: other variants of it, and mistakes in it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...causes import updates as causes
from ...oracle.bounded_values import Value
from ...oracle.optimizer import Optimizer
from ...seeded_values import Array
from ..arrays.evidence import WhatIf


def other_adams(name: str, optimizer: Optimizer, before: Array, gradient: Array) -> WhatIf:
    """optimizer: its state before the update of `before` by `gradient`; arrays have the ranks as first axis."""
    update = _Adam(name, optimizer, before, gradient)
    yield from _other_eps(update)
    yield from _other_corrections(update)
    if update.count > 1:
        yield from _other_moments(update)
        yield from _rounded_moments(update)
    if update.count == 2:
        yield from _other_betas(update)


class _Adam:
    """One update. count: of updates, including this one. m, s: the moments after it."""

    def __init__(self, name: str, optimizer: Optimizer, before: Array, gradient: Array) -> None:
        self.name, self.optimizer, self.before, self.gradient = name, optimizer, before, gradient
        after = optimizer.copy()
        after.step(name, Value(before), Value(gradient))
        self.m, self.s = (after.state[f"{name}.{part}"].exact for part in "ms")
        self.count = after.steps[name]

    def old(self, part: str) -> Array:
        """A moment before the update."""
        return self.optimizer.state[f"{self.name}.{part}"].exact

    def corrections(self, count: int) -> tuple[float, float]:
        """The bias corrections after this many updates."""
        first, second = (1 - beta**count for beta in self.optimizer.spec.betas)
        return first, second

    def moved(self, first: float, second: float, eps: float | None = None, squares: Array | None = None) -> Array:
        """The parameter with these bias corrections."""
        spec = self.optimizer.spec
        root = np.sqrt((self.s if squares is None else squares) / second)
        return np.asarray(self.before - spec.lr * (self.m / first) / (root + (spec.eps if eps is None else eps)))

    def stepped(self, **state: Array) -> Array:
        """The parameter with these moments."""
        used = self.optimizer.copy()
        used.state |= {f"{self.name}.{part}": Value(array) for part, array in state.items()}
        return used.step(self.name, Value(self.before), Value(self.gradient)).exact


def _other_eps(update: _Adam) -> WhatIf:
    """Bias correction is missing, or eps is added at another place."""
    spec = update.optimizer.spec
    first, second = update.corrections(update.count)
    yield causes.BIAS_CORRECTION_MISSING(), update.moved(1, 1)
    yield causes.EPSILON_HAT(), update.moved(first, second, spec.eps / np.sqrt(second))
    inside = update.before - spec.lr * (update.m / first) / np.sqrt(update.s / second + spec.eps)
    yield causes.EPS_INSIDE_ROOT(), inside
    yield causes.EPS_FIXED(), update.moved(first, second, 1e-8)


def _other_corrections(update: _Adam) -> WhatIf:
    """Bias corrections by another number of updates, or by the other beta."""
    count = update.count
    if count > 1:
        yield causes.STEPS_FROM_1(), update.moved(*update.corrections(1))
    for other in sorted({*update.optimizer.steps.values()} - {count - 1}):
        yield causes.STEPS_OF_OTHER(), update.moved(*update.corrections(other + 1))
    if count > 1:
        one, two = update.optimizer.spec.betas
        swapped = update.moved(1 - two ** (count - 1) * one, 1 - one ** (count - 1) * two)
        yield causes.BETA_POWERS_SWAPPED(), swapped
    ahead = causes.STEP_AHEAD_FROM_START if count == 1 else causes.STEP_AHEAD
    yield ahead(), update.moved(*update.corrections(count + 1))


def _other_moments(update: _Adam) -> WhatIf:
    """A moment is lost, both are swapped, or the second is the largest so far."""
    m, s = update.old("m"), update.old("s")
    yield causes.MOMENT_LOST(moment="first"), update.stepped(m=np.zeros_like(m))
    yield causes.MOMENT_LOST(moment="second"), update.stepped(s=np.zeros_like(s))
    yield causes.MOMENTS_SWAPPED(), update.stepped(m=s, s=abs(m))
    first, second = update.corrections(update.count)
    yield causes.AMSGRAD(), update.moved(first, second, squares=np.maximum(s, update.s))


def _rounded_moments(update: _Adam) -> WhatIf:
    for part, which in (("m", "first"), ("s", "second")):
        for dtype, bits in (("float16", 11), ("bfloat16", 8)):
            held = update.stepped(**{part: _rounded(update.old(part), bits)})
            yield causes.MOMENT_IN(moment=which, dtype=dtype), held


def _other_betas(update: _Adam) -> WhatIf:
    """Other betas, at the second update, when the first gradient is still known."""
    name, spec = update.name, update.optimizer.spec
    given = update.old("m") / (1 - spec.betas[0])
    for betas, kind in (((0.9, 0.999), causes.BETAS_FIXED), (spec.betas[::-1], causes.BETAS_SWAPPED)):
        used = Optimizer(replace(spec, betas=betas), "float64", steps={name: 1})
        used.state = {f"{name}.m": Value((1 - betas[0]) * given), f"{name}.s": Value((1 - betas[1]) * given**2)}
        yield kind(), used.step(name, Value(update.before), Value(update.gradient)).exact


def _rounded(array: Array, bits: int) -> Array:
    """Round to a significand of this many bits."""
    significand, exponent = np.frexp(array)
    return np.asarray(np.ldexp(np.rint(significand * 2.0**bits), exponent - bits))
