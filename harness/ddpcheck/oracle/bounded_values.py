"""Arithmetic on exact values with rounding bounds, for all parts but the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from ..numerics import gamma, reduction_bound
from ..seeded_values import Array


@dataclass(frozen=True, slots=True)
class Value:
    """`exact`, in float64 (counters as integers), and a bound on rounding (None: not needed; inf: unknown)."""

    exact: Array
    error: Array | None = None

    def of_rank_zero(self) -> Value:
        """Rank 0's value, repeated for every rank."""
        return Value(from_rank_zero(self.exact), None if self.error is None else from_rank_zero(self.error))

    def zeros(self) -> Value:
        return Value(np.zeros_like(self.exact), None if self.error is None else np.zeros_like(self.error))


def as_shown(shown: Sequence[Mapping[str, Array | None]], name: str) -> Value | None:
    """The value of this name that each rank shows, which is exact; None if a rank shows none."""
    arrays = [seen.get(name) for seen in shown]
    found = [array for array in arrays if array is not None]
    if len(found) < len(arrays) or len({array.shape for array in found}) > 1:
        return None
    stacked = np.stack(found)
    exact = stacked.astype(np.float64) if stacked.dtype.kind == "f" else stacked
    return Value(exact, np.zeros_like(exact))


def combine(terms: Sequence[tuple[float, Value]], roundings: int, dtype: npt.DTypeLike, divisor: float = 1.0) -> Value:
    """sum(factor * value) / divisor, where each term goes through at most `roundings` roundings, in any order.

    The bound is sum|factor| error + gamma_m sum|factor| (|value| + error). The oracle's own float64 roundings are
    added: they count if the implementation computes in float64 too.
    """
    parts = [value.exact if factor == 1.0 else value.exact * factor for factor, value in terms]
    exact = _sum(parts)
    if divisor != 1.0:
        exact = exact / divisor  # division keeps a multiple of the divisor exact; a product with 1 / divisor would not
    errors = [(abs(factor), value.error) for factor, value in terms if value.error is not None]
    if len(errors) < len(terms):
        return Value(exact)
    error = _sum([error if factor == 1.0 else error * factor for factor, error in errors])
    size = _sum([*map(abs, parts), error])
    bound = error + (gamma(roundings, dtype) + gamma(roundings, np.float64)) * size
    return Value(exact, bound if divisor == 1.0 else bound / abs(divisor))


def _sum(arrays: Sequence[Array]) -> Array:
    return reduce(np.add, arrays)


def over_ranks(value: Value, weights: Array | None, divisor: float, dtype: str, more: int = 0) -> Value:
    """sum_r weights_r value_r / divisor, on every rank: W - 1 additions, a weight, two for the divisor.

    more: roundings in the weights and the divisor.
    """
    ranks = len(value.exact)
    exact = _sum_over_ranks(value.exact, weights) / divisor
    if value.error is None:
        return Value(exact.repeat(ranks, axis=0))
    roundings = ranks + 2 + more
    size = _sum_over_ranks(abs(value.exact) + value.error, weights)
    rounded = reduction_bound(size, ranks, dtype, roundings) + gamma(roundings, np.float64) * size
    error = (_sum_over_ranks(value.error, weights) + rounded) / divisor
    return Value(exact.repeat(ranks, axis=0), error.repeat(ranks, axis=0))


def by_rank(values: Array, like: Array) -> Array:
    """One value for each rank, shaped to be multiplied with an array whose first axis is the ranks."""
    return values.reshape(-1, *(1,) * (like.ndim - 1))


def from_rank_zero(array: Array) -> Array:
    """Rank 0's array, repeated for every rank."""
    return array[:1].repeat(len(array), axis=0)


def _sum_over_ranks(array: Array, weights: Array | None) -> Array:
    """The sum over ranks, of shape (1, *shape)."""
    weighted = array if weights is None else array * by_rank(weights, array)
    return np.add.reduce(weighted, axis=0, keepdims=True)
