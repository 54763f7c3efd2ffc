"""Patterns that the wrong elements of an array have in common. For likely_cause.py."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import comb
from typing import Any

import numpy as np

from ...causes import Cause, values
from ...numerics import LARGEST, different_bits, ulp_distance
from ...seeded_values import Array
from .wrong_elements import elements

_ALIKE = 2.0**-7
"""Weights that differ by less are explained by lost precision."""


def weighted(got: Array, expected: Array, parts: Array) -> Iterator[Cause]:
    """The ranks' parts with other weights, where there are twice as many elements as ranks to tell by."""
    size, matrix = len(parts), parts.reshape(len(parts), -1).T.astype(np.float64)
    if got.dtype.kind != "f" or size < 2 or got.size <= 2 * size or not np.isfinite(matrix).all():
        return
    if not got.any() or not np.isfinite(got).all() or np.linalg.matrix_rank(matrix) < size:
        return
    found, right = (_weights(matrix, array.reshape(-1).astype(np.float64), got.dtype) for array in (got, expected))
    if found is None or right is None or np.allclose(found, right, rtol=_ALIKE):
        return
    kind = values.RANKS_WEIGHTED
    if (np.isclose(found, 1) | np.isclose(found, 1 / size)).all():
        kind = values.DIVIDED_WHILE_SENT
    elif np.isclose(found.sum(), 1):
        kind = values.WEIGHTED_BY_OTHER_SIZES
    yield kind(weights=tuple(found.tolist()), expected=tuple(right.tolist()))


def thinned(got: Array, expected: Array, parts: Array) -> Iterator[Cause]:
    """Whether here this and there that rank's part is missing, where there are elements enough to say so."""
    size = len(parts)
    if got.dtype.kind != "f" or not 1 < size <= _SUBSETS:
        return
    each, seen = parts / size, got.astype(np.float64)
    near = 4 * float(np.finfo(got.dtype).eps) * np.abs(each).sum(axis=0)
    wrong = np.abs(expected - seen) > near
    if int(wrong.sum()) < 4 * 2**size:
        return
    missing = [list(subset) for count in range(1, size + 1) for subset in combinations(range(size), count)]
    fits = [(np.abs(expected - each[subset].sum(axis=0) - seen) <= near)[wrong] for subset in missing]
    if np.logical_or.reduce(fits).all() and not any(fit.all() for fit in fits):
        yield values.PARTS_OF_RANKS_MISSING().among(elements(wrong))


_SUBSETS = 4
"""The largest world size at which all subsets of ranks are tried."""


def _weights(matrix: Array, array: Array, dtype: np.dtype[Any]) -> Array | None:
    """The coefficients of the columns whose sum is the array; None if there are none."""
    weights = np.linalg.lstsq(matrix, array, rcond=None)[0]
    rounding = 1024 * float(np.finfo(dtype).eps) * float(np.abs(array).max(initial=0.0))
    return np.asarray(weights) if np.abs(matrix @ weights - array).max() <= rounding else None


_SMALL = 2.0**-16
"""The size below which a format of few bits may give zero."""
_NOT_BY_CHANCE = 20
"""In how many ways zeros have to be able to lie, if that they are the smallest is to tell something."""


def zeros(got: Array, expected: Array, wrong: Array) -> Iterator[Cause]:
    if got[wrong].any():
        return
    largest = float(np.max(np.abs(expected[wrong].astype(np.float64))))
    others = np.abs(expected[~wrong & (expected != 0)].astype(np.float64))
    chosen = comb(len(others) + int(wrong.sum()), len(others)) >= _NOT_BY_CHANCE
    smallest = chosen and largest < float(others.min())
    if got.dtype.kind == "f" and (smallest or largest < _SMALL):
        yield values.FLUSHED_TO_ZERO().among(elements(wrong))
    yield values.ZERO().among(elements(wrong))


def overflown(got: Array, expected: Array) -> Iterator[Cause]:
    """Whether exactly the elements outside float16's range are infinite, up to values that cancel in a mean."""
    infinite = np.isinf(got)
    if not infinite.any() or np.isnan(got).any() or got.dtype.char not in "df":
        return
    most, large, others = LARGEST["float16"], np.abs(expected[infinite]), got[~infinite]
    if large.min() > most / 8 and (np.abs(others) <= most).all() and all_fit(others, 11):
        yield values.OVERFLOW_FLOAT16().among(elements(infinite))


def clamped(got: Array, expected: Array, parts: Array) -> Iterator[Cause]:
    """Every rank's part, cut off at one and the same magnitude before they are averaged. One wrong element tells nothing but
    by a magnitude that somebody would choose.
    """
    size = len(parts)
    if (
        got.dtype.kind != "f"
        or parts.shape[1:] != got.shape
        or not (np.isfinite(got).all() and np.isfinite(parts).all())
    ):
        return
    if not np.allclose(parts.mean(axis=0), expected, rtol=1e-5):
        return
    flat, seen = parts.reshape(size, -1), got.reshape(-1).astype(np.float64)
    near = 64 * float(np.finfo(got.dtype).eps) * np.abs(flat).max(axis=0)
    wrong = np.abs(flat.mean(axis=0) - seen) > near
    if not wrong.any():
        return
    place = int(np.argmax(wrong))
    column = flat[np.argsort(-np.abs(flat[:, place]), kind="stable"), place]
    for above in range(1, size + 1):
        signs = float(np.sign(column[:above]).sum())
        limit = (size * seen[place] - column[above:].sum()) / signs if signs else 0.0
        fits = limit > 0 and bool((np.abs(np.clip(flat, -limit, limit).mean(axis=0) - seen) <= near).all())
        if fits and (int(wrong.sum()) > 1 or _is_chosen(limit)):
            yield values.PARTS_CLAMPED(limit=float(limit))
            return


def _is_chosen(limit: float) -> bool:
    """Whether the value is a plausible limit: a power of ten, or the largest float16."""
    return bool(np.isclose(limit, LARGEST["float16"])) or bool(np.isclose(limit, 10.0 ** np.rint(np.log10(limit))))


def cut_off(got: Array, expected: Array, wrong: Array) -> Iterator[Cause]:
    """The limit at which different larger elements were clipped to one value; no element exceeds it."""
    few = int(wrong.sum()) < 2 or len(np.unique(np.abs(expected[wrong]))) < 2
    if got.dtype.kind != "f" or (few and np.isfinite(expected[wrong]).all()):
        return
    largest = float(np.abs(got[wrong]).max())
    alike = (np.abs(got[wrong]) == largest).all() and (np.abs(got[~wrong]) <= largest).all()
    if alike and (np.abs(expected[wrong]) > largest).all():
        yield values.CLAMPED(limit=largest).among(elements(wrong))


def changed_by(got: Array, expected: Array, before: Array | None) -> Iterator[Cause]:
    """Whether all elements went the same share of their way; two say so by chance only if rounding hides the rest."""
    if before is None or before.shape != got.shape or got.dtype.kind != "f":
        return
    old = before.astype(np.float64)
    went, way = got.astype(np.float64) - old, expected.astype(np.float64) - old
    moved = way != 0
    if moved.sum() < 2:
        return
    share = went[moved] / way[moved]
    rounding = 64 * float(np.finfo(got.dtype).eps) * np.abs(old[moved]) / np.abs(way[moved])
    middle = float(np.median(share))
    if np.isfinite(share).all() and (np.abs(share - middle) <= rounding).all() and float(rounding.max()) < 0.01:
        yield values.SCALED_UPDATE(share=middle)


def tiny_differences(got: Array, expected: Array) -> Iterator[Cause]:
    if got.dtype != expected.dtype or got.dtype.kind != "f":
        return
    differ = different_bits(np.ascontiguousarray(got), np.ascontiguousarray(expected))
    if differ.any():
        worst = int(ulp_distance(got, expected).max())
        yield values.LAST_BITS_WRONG(count=int(differ.sum()), size=got.size, ulp=worst)


def lost_precision(got: Array, expected: Array, *, small: bool) -> Iterator[Cause]:
    if got.dtype.kind in "iu":
        for narrow in (size for size in (4, 2, 1) if size < got.dtype.itemsize):
            if np.array_equal(got, expected.astype(f"{got.dtype.kind}{narrow}")):
                yield values.INTEGERS_TRUNCATED(bits=8 * narrow)
                return
        differ = got != expected
        wrong = np.abs(expected[differ].astype(np.float64))  # an integer's lowest value has no absolute one
        error = np.abs(got[differ].astype(np.float64) - expected[differ].astype(np.float64))
        overflow = wrong >= 2.0**62  # the largest integers round up to a float that is no integer of this dtype
        for name, bits in (("float64", 53), ("float32", 24)):
            lossy = ~_has_bits(expected, bits)
            near = overflow | (error <= wrong * 2.0 ** (2 - bits))
            if (wrong > 2.0**bits - 1).all() and near.all() and 2 * int((differ & lossy).sum()) >= int(lossy.sum()):
                yield values.INTEGERS_AS_FLOAT(dtype=name, bits=bits)
                return
    if got.dtype.kind != "f":
        return
    finite = np.isfinite(expected) & (expected != 0)
    if not finite.any() or not np.isfinite(got).all() or np.isinf(expected).any():
        return
    error = float(np.max(np.abs(got[finite] - expected[finite]) / np.max(np.abs(expected[finite]))))
    narrower = (("float32", 24, "d"), ("float16", 11, "df" * small), ("bfloat16", 8, "df" * small))
    possible = [
        (name, bits) for name, bits, dtypes in narrower if got.dtype.char in dtypes and error < 2.0 ** (2 - bits)
    ]
    off = got != expected
    # a format does not round the numbers that it holds; a rounded number is one of them, or a sum of few
    possible = [each for each in possible if not all_fit(expected[off], each[1]) or all_fit(got[off], each[1] + SUMS)]
    held = [name for name, bits in possible if _fits(got[off], bits)]
    guessed = [f"{name}{_AS_COARSE.get(bits, '')}" for name, bits in possible]
    for name in (held[-1:] or guessed)[:1]:
        yield values.FEWER_BITS(dtype=name, given=got.dtype.name, error=error)


_AS_COARSE = {8: " or int8", 11: " or TF32"}
"""By bits of the significand, the other formats that leave an error as large."""
_MANY = 6
SUMS = 6
"""Bits by which a sum of numbers may be longer than they are."""


def _fits(array: Array, bits: int) -> bool:
    """Whether every element has a significand of so many bits, and they are too many for chance."""
    return array.size >= _MANY and all_fit(array, bits)


def all_fit(array: Array, bits: int) -> bool:
    significands = np.ldexp(np.frexp(array.astype(np.float64))[0], bits)
    return bool((significands == np.trunc(significands)).all())


def _has_bits(integers: Array, bits: int) -> Array:
    """Which of them a float of so many bits holds: those whose lowest set bit is that near to the highest."""
    lowest = integers & -integers
    return np.asarray(abs(integers // np.where(lowest == 0, 1, lowest)) < 2**bits)
