"""Clipping by the global norm, on values that carry their bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..causes import Cause
from ..causes import updates as causes
from ..numerics import gamma
from ..seeded_values import Array
from .bounded_values import Value, by_rank

GUARD = 1e-6
"""Some divide by norm + 1e-6, so that a norm of 0 does no harm. The contract does not; the bound allows it."""

TINY = 1e-150


def global_norm(gradients: Sequence[Value], dtype: str) -> Value:
    """Every rank's norm over all gradients: |norm' - norm| <= norm of the errors, and the roundings of a sum of
    squares.
    """
    exact = np.sqrt(sum(_sum(g.exact**2) for g in gradients))
    if any(g.error is None for g in gradients):
        return Value(exact)
    error = np.sqrt(sum(_sum(g.error**2) for g in gradients if g.error is not None))
    count = sum(g.exact[0].size for g in gradients) + 4
    return Value(exact, error + (gamma(count, dtype) + gamma(count, np.float64)) * (exact + error))


def clipped(gradient: Value, norm: Value, max_norm: float, dtype: str) -> Value:
    """The gradient times min(1, max_norm / norm)."""
    shape = (-1, *(1,) * (gradient.exact.ndim - 1))
    size = np.maximum(norm.exact, TINY)
    factor = np.minimum(1, max_norm / size).reshape(shape)
    exact = gradient.exact * factor
    if gradient.error is None or norm.error is None:
        return Value(exact)
    least = np.maximum(norm.exact - norm.error, TINY)
    touched = norm.exact + norm.error >= max_norm  # else no correct implementation clips
    moved = np.where(touched, np.minimum(1, max_norm * (norm.error + GUARD) / (size * least)), 0).reshape(shape)
    error = factor * gradient.error + (abs(gradient.exact) + gradient.error) * moved
    return Value(exact, error + (gamma(3, dtype) + gamma(3, np.float64)) * (abs(exact) + error))


@dataclass(frozen=True, slots=True)
class Clip:
    """The last clip since zero_grad. before: gradients by name in front of it, with the ranks as first axis."""

    before: Mapping[str, Array]
    max_norm: float

    def gone_wrong(self, name: str) -> Iterator[tuple[Cause, Array]]:
        """The gradient of this name as other ways of clipping would give it."""
        gradient, limit = self.before[name], self.max_norm
        norms = np.sqrt(sum(_sum(other**2) for other in self.before.values()))
        largest = np.max(
            [abs(other.reshape(len(norms), -1)).max(axis=1, initial=0) for other in self.before.values()], axis=0
        )
        yield causes.NOT_CLIPPED(), gradient
        if not norms.any():
            yield causes.DIVIDED_BY_ZERO_NORM(), _nan(gradient)
        if np.isinf(limit):
            yield causes.INFINITE_CLIP_NAN(), _nan(gradient)
            yield causes.INFINITE_CLIP_SCALES(), _infinite(gradient)
        yield causes.CLIPPED_BY_OWN_NORM(), _scaled(gradient, _sum(gradient**2) ** 0.5, limit)
        yield causes.CLIPPED_BY_ELEMENT(), np.clip(gradient, -limit, limit)
        yield causes.CLIPPED_BY_LARGEST(), _scaled(gradient, largest, limit)
        if np.isfinite(limit):
            yield causes.SCALED_UP_TO_LIMIT(), _scaled(gradient, norms, limit, most=np.inf)
        yield causes.CLIPPED_TWICE(), _scaled(gradient, norms**2, limit**2)
        for part in _parts([*self.before], name):
            norm = np.sqrt(sum(_sum(self.before[other] ** 2) for other in part))
            yield causes.CLIPPED_BY_GROUPS(parameters=tuple(part)), _scaled(gradient, norm, limit)
        for guard in _LARGE_GUARDS:
            yield causes.CLIP_GUARD(guard=guard), _scaled(gradient, norms + guard, limit)


def _parts(names: list[str], name: str) -> list[list[str]]:
    """Of two or more parameters in a row from either end, those that have this one among them; of few parameters."""
    places = range(1, len(names)) if len(names) <= _FEW else ()
    return [part for place in places for part in (names[:place], names[place:]) if name in part and len(part) > 1]


_FEW = 8
_LARGE_GUARDS = (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)


def _scaled(gradient: Array, norms: Array, limit: float, most: float = 1.0) -> Array:
    factors = np.minimum(most, limit / np.maximum(norms, TINY))
    return np.asarray(gradient * by_rank(factors, gradient))


def _nan(gradient: Array) -> Array:
    return np.full_like(gradient, np.nan)


def _infinite(gradient: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.asarray(gradient * np.inf)


def _sum(squares: Array) -> Array:
    return np.asarray(squares.reshape(len(squares), -1).sum(axis=1))
