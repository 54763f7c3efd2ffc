"""Distances between floating-point arrays, and a-priori bounds on rounding.

u is the unit roundoff of a dtype (2**-24 for float32, 2**-53 for float64) and gamma_m = m u / (1 - m u) bounds the
relative error of a product of m factors (1 + d), |d| <= u: Higham, Accuracy and Stability of Numerical Algorithms, 2nd
ed., Lemma 3.1. A sum of terms that each go through at most m roundings is off by at most gamma_m times the sum of
|terms|.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from .seeded_values import Array

_BFLOAT16 = 2.0**-8  # NumPy has no such dtype
LARGEST = {"float16": 65504.0, "bfloat16": 2.0**128 * (1 - 2.0**-8)}
SMALLEST = {"float16": 2.0**-24, "bfloat16": 2.0**-133}
"""The largest and the smallest positive numbers of the dtypes of reduced precision."""


def unit_roundoff(dtype: npt.DTypeLike) -> float:
    """Half the distance from 1 to the next larger number of a floating dtype, bfloat16 included; 0 for integers."""
    return _BFLOAT16 if isinstance(dtype, str) and dtype == "bfloat16" else _unit_roundoff(np.dtype(dtype))


@cache
def _unit_roundoff(dtype: np.dtype[Any]) -> float:
    return float(np.finfo(dtype).eps) / 2 if dtype.kind == "f" else 0.0


def gamma(roundings: int, dtype: npt.DTypeLike) -> float:
    """gamma_m for m roundings in `dtype`. ValueError where m u >= 1, since no bound holds there."""
    product = roundings * unit_roundoff(dtype)
    if product >= 1:
        raise ValueError(f"{roundings} roundings in {dtype} have no bound")
    return product / (1 - product)


def sum_bound(magnitudes: Array, terms: int, dtype: npt.DTypeLike, *, extra: int = 0) -> Array:
    """Bound on a sum of `terms` numbers in any order: gamma_(terms - 1 + extra) * sum|terms| (Higham, section 4.2).

    magnitudes: sum of the absolute values, element by element. extra: further roundings, such as one for a division.
    """
    return np.asarray(magnitudes, np.float64) * gamma(max(terms - 1, 0) + extra, dtype)


def reduction_bound(magnitudes: Array, ranks: int, dtype: str, roundings: int) -> Array:
    """Bound on a sum over ranks, each term of which goes through at most `roundings` roundings, in any order.

    magnitudes: sum of the absolute values, element by element. dtype: the model's, or float16 or bfloat16, in which
    each value may also be off by the smallest number. Values above the dtype's largest number become infinite and have
    no bound.
    """
    if dtype not in LARGEST:
        return np.asarray(magnitudes * gamma(roundings, dtype))
    bound = magnitudes * gamma(roundings + 1, dtype) + ranks * (roundings + 1) * SMALLEST[dtype]
    return np.where(magnitudes + bound > LARGEST[dtype], np.inf, bound)


def same_bits(a: Array, b: Array) -> bool:
    """Equal shape, dtype and bits; the sign of zero and a NaN's payload count."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def different_bits(a: Array, b: Array) -> npt.NDArray[np.bool_]:
    """Whether bits differ, element by element; shapes and dtypes must be equal."""
    width = a.dtype.itemsize
    left = np.frombuffer(a.tobytes(), np.uint8).reshape(*a.shape, width)
    right = np.frombuffer(b.tobytes(), np.uint8).reshape(*b.shape, width)
    found: npt.NDArray[np.bool_] = (left != right).any(axis=-1)
    return found


def ulp_distance(a: Array, b: Array) -> npt.NDArray[Any]:
    """The number of representable numbers between a and b, element by element, as float64.

    Floats of one dtype are mapped to integers in the order of the reals; -0 and +0 are one number. NaN against a number
    is inf, NaN against NaN is 0.
    """
    if a.dtype != b.dtype or a.dtype.kind != "f":
        raise TypeError(f"ulp distance needs two arrays of one floating dtype, got {a.dtype} and {b.dtype}")
    bits = np.dtype(f"i{a.dtype.itemsize}")
    lowest = np.iinfo(bits).min

    def ordered(x: Array) -> Array:
        raw = np.ascontiguousarray(x).view(bits).reshape(x.shape)
        return np.where(raw < 0, lowest - raw, raw)

    with np.errstate(over="ignore"):
        left, right = ordered(a), ordered(b)
        distance = np.abs(left.astype(np.float64) - right.astype(np.float64))
        exact = left - right
        near = distance < 2.0**52
        distance = np.where(near, np.abs(exact.astype(np.float64)), distance)
    nan_a, nan_b = np.isnan(a), np.isnan(b)
    return np.where(nan_a & nan_b, 0.0, np.where(nan_a | nan_b, np.inf, distance))
