"""Patterns common to the wrong elements of an array."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import comb
from typing import Any

import numpy as np

from ...causes import Cause, values
from ...causes.cause import Given
from ...numerics import LARGEST, different_bits, ulp_distance
from ...seeded_values import Array
from .evidence import WrongArray, close
from .wrong_elements import elements

_ALIKE = 2.0**-7
"""Weights that differ by less are explained by lost precision."""


def weighted(of: WrongArray) -> Iterator[Cause]:
    """The ranks' parts with other weights, if there are at least twice as many elements as ranks."""
    got, expected, parts = of.got, of.expected, of.evidence.parts
    if parts is None:
        return
    size, matrix = len(parts), parts.reshape(len(parts), -1).T.astype(np.float64)
    if got.dtype.kind != "f" or size < 2 or got.size <= 2 * size or not np.isfinite(matrix).all():
        return
    if not got.any() or not np.isfinite(got).all() or np.linalg.matrix_rank(matrix) < size:
        return
    found, right = (_weights(matrix, array.reshape(-1).astype(np.float64), got.dtype) for array in (got, expected))
    if found is None or right is None or np.allclose(found, right, rtol=_ALIKE):
        return
    if _only_own(found, of):
        yield values.NOT_REDUCED()
        return
    kind = values.RANKS_WEIGHTED
    if (np.isclose(found, 1) | np.isclose(found, 1 / size)).all():
        kind = values.DIVIDED_WHILE_SENT
    elif np.isclose(found.sum(), 1):
        kind = values.WEIGHTED_BY_OTHER_SIZES
    yield kind(weights=tuple(found.tolist()), expected=tuple(right.tolist()))


def thinned(of: WrongArray) -> Iterator[Cause]:
    """Whether one rank's part is missing in some elements and another's in others, if there are enough elements."""
    got, expected, parts = of.got, of.expected, of.evidence.parts
    if parts is None:
        return
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


def _only_own(weights: Array, of: WrongArray) -> bool:
    """Whether the part of this rank alone has a weight: 1, or another if the loss is scaled as well."""
    parts, local = of.evidence.parts, of.evidence.local
    there = np.flatnonzero(~np.isclose(weights, 0))
    return len(there) == 1 and parts is not None and local is not None and np.array_equal(parts[there[0]], local)


def _weights(matrix: Array, array: Array, dtype: np.dtype[Any]) -> Array | None:
    """The coefficients of the columns whose sum is the array; None if there are none."""
    weights = np.linalg.lstsq(matrix, array, rcond=None)[0]
    rounding = 1024 * float(np.finfo(dtype).eps) * float(np.abs(array).max(initial=0.0))
    return np.asarray(weights) if np.abs(matrix @ weights - array).max() <= rounding else None


_SMALL = 2.0**-16
"""The size below which a format of few bits may give zero."""
_NOT_BY_CHANCE = 20
"""Zeros prove that the smallest elements are lost only if they could lie in this many ways."""


def zeros(of: WrongArray) -> Iterator[Given]:
    """All wrong elements are zero, or were updated by a gradient of zero."""
    idle = of.evidence.idle
    if idle is not None and close(of.got, idle)[of.wrong].all():
        yield values.ZERO().among(elements(of.wrong))
    for cause in zeros_among(of.got, of.expected, of.wrong):
        yield (of.evidence.zero, cause.but("possible")) if of.evidence.zero else cause


def zeros_among(got: Array, expected: Array, wrong: Array) -> Iterator[Cause]:
    """Whether all of these wrong elements are zero."""
    if got[wrong].any():
        return
    largest = float(np.max(np.abs(expected[wrong].astype(np.float64))))
    others = np.abs(expected[~wrong & (expected != 0)].astype(np.float64))
    chosen = comb(len(others) + int(wrong.sum()), len(others)) >= _NOT_BY_CHANCE
    smallest = chosen and largest < float(others.min())
    if got.dtype.kind == "f" and (smallest or largest < _SMALL):
        yield values.FLUSHED_TO_ZERO().among(elements(wrong))
    yield values.ZERO().among(elements(wrong))


def clamped(of: WrongArray) -> Iterator[Cause]:
    """Every rank's part, cut off at one magnitude before averaging. A single wrong element proves it only for a
    plausible magnitude.
    """
    got, expected, parts = of.got, of.expected, of.evidence.parts
    if parts is None:
        return
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
        # if all of these parts have one magnitude, a factor does the same
        several = len(np.unique(np.abs(flat)[np.abs(flat) > limit])) > 1
        if fits and ((several and got.size > 1) or _is_chosen(limit)):
            yield values.PARTS_CLAMPED(limit=float(limit))
            return


def _is_chosen(limit: float) -> bool:
    """Whether the value is a plausible limit: a power of ten, or the largest float16."""
    return bool(np.isclose(limit, LARGEST["float16"])) or bool(np.isclose(limit, 10.0 ** np.rint(np.log10(limit))))


def cut_off(of: WrongArray) -> Iterator[Cause]:
    """The limit to which different larger elements were clipped; no element exceeds it."""
    got, expected, wrong = of.got, of.expected, of.wrong
    few = int(wrong.sum()) < 2 or len(np.unique(np.abs(expected[wrong]))) < 2
    if got.dtype.kind != "f" or (few and np.isfinite(expected[wrong]).all()):
        return
    largest = float(np.abs(got[wrong]).max())
    alike = (np.abs(got[wrong]) == largest).all() and (np.abs(got[~wrong]) <= largest).all()
    if alike and (np.abs(expected[wrong]) > largest).all():
        yield values.CLAMPED(limit=largest).among(elements(wrong))


def changed_by(of: WrongArray) -> Iterator[Cause]:
    """Whether all elements went the same share of their way. Two elements do so by chance only if rounding hides the
    rest.
    """
    got, expected, before = of.got, of.expected, of.evidence.before
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


def tiny_differences(of: WrongArray) -> Iterator[Cause]:
    """Only last bits differ."""
    got, expected = of.got, of.expected
    if got.dtype != expected.dtype or got.dtype.kind != "f":
        return
    differ = different_bits(np.ascontiguousarray(got), np.ascontiguousarray(expected))
    if differ.any():
        worst = int(ulp_distance(got, expected).max())
        yield values.LAST_BITS_WRONG(count=int(differ.sum()), size=got.size, ulp=worst)


def changed_on_the_way(of: WrongArray) -> Iterator[Cause]:
    """Last bits of data that was only moved."""
    got, expected = of.got, of.expected
    differ = ~(np.equal(got, expected) | (np.isnan(got) & np.isnan(expected)))
    if differ.any():
        yield from zeros_among(got, expected, differ)
        yield values.BITS_CHANGED().among(elements(differ))


def permuted(of: WrongArray) -> Iterator[Cause]:
    """The right elements in another order."""
    got, expected = np.sort(of.got, axis=None), np.sort(of.expected, axis=None)
    if got.size > 1 and np.array_equal(got, expected, equal_nan=True):
        yield values.PERMUTED()
