"""Clipping by the global norm, on values with bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..numerics import gamma
from ..seeded_values import Array
from .bounded_values import Value

GUARD = 1e-6
"""Some implementations divide by norm + 1e-6 to allow a norm of 0. The contract does not, but the bound allows it."""

TINY = 1e-150


def global_norm(gradients: Sequence[Value], dtype: str) -> Value:
    """Every rank's norm over all gradients. Its error is bounded by the norm of the gradients' errors, plus the
    roundings of a sum of squares.
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
    touched = norm.exact + norm.error >= max_norm  # otherwise no correct implementation clips
    moved = np.where(touched, np.minimum(1, max_norm * (norm.error + GUARD) / (size * least)), 0).reshape(shape)
    error = factor * gradient.error + (abs(gradient.exact) + gradient.error) * moved
    return Value(exact, error + (gamma(3, dtype) + gamma(3, np.float64)) * (abs(exact) + error))


@dataclass(frozen=True, slots=True)
class Clip:
    """The last clip since zero_grad. before: the gradients before it, by name, with the ranks as first axis. dtypes: of
    the parameters.
    """

    before: Mapping[str, Array]
    max_norm: float
    dtypes: Mapping[str, str]


def _sum(squares: Array) -> Array:
    return np.asarray(squares.reshape(len(squares), -1).sum(axis=1))
