"""Finds one factor by which all elements are wrong."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...causes import Cause, values
from ...causes.cause import Given, as_causes
from ...seeded_values import Array
from .evidence import WrongArray, close
from .few_bits import SUMS, all_fit
from .wrong_elements import elements

_DIFFERENT = 4
"""This many different elements do not have one factor by chance."""
_NEARLY_ONE = 2.0**-7
_ROUNDED = 2.0**-21
"""A factor this close to 1 is a reciprocal in float32, rounded a few times: a wrong divisor is further away."""
_LOSS_SCALES = range(7, 33)
"""Powers of two that are never a number of ranks, micro-batches or samples here."""


def world_size(of: WrongArray) -> Iterator[Given]:
    """Summed instead of averaged, or divided once too often."""
    size = of.evidence.world_size
    known: list[tuple[float, Given]] = [
        (float(size), (values.SUMMED_NOT_AVERAGED(world_size=size), *as_causes(of.evidence.doubt))),
        (1.0 / size, (values.DIVIDED_TOO_OFTEN(world_size=size), *as_causes(of.evidence.less))),
    ]
    yield from _matching(of, known if size > 1 else [])


def world_size_in_part(of: WrongArray) -> Iterator[Cause]:
    """Divided once too often in the wrong elements: enough of them, and not all equal."""
    size, got, expected = of.evidence.world_size, of.got[of.wrong], of.expected[of.wrong]
    if size < 2 or got.dtype.kind not in "fi" or len(np.unique(np.abs(expected))) < _DIFFERENT:
        return
    if close(got, expected, 1.0 / size).all():
        yield values.PART_DIVIDED_AGAIN(world_size=size).among(elements(of.wrong))


def rare_factors(of: WrongArray) -> Iterator[Given]:
    """Powers of the world size, or the number of elements."""
    size, elements = of.evidence.world_size, of.got.size
    rarer: list[tuple[float, Given]] = [
        (float(size) ** 2, values.MULTIPLIED_NOT_AVERAGED(world_size=size)),
        (1.0 / size**2, values.DIVIDED_TWICE_TOO_OFTEN(world_size=size)),
    ] * (size > 1)
    if elements not in (1, size):
        by_elements = values.DIVIDED_BY_ELEMENTS(size=elements, world_size=size)
        # on one rank, nothing tells it from any other wrong divisor
        other = (values.WRONG_FACTOR(factor=1 / elements),) * (size == 1)
        rarer.append((size / elements, (by_elements, *other)))
    yield from _matching(of, rarer)


def any_factor(of: WrongArray) -> Iterator[Cause]:
    """Any factor that all elements share; for a single element any factor fits."""
    got, expected = of.got, of.expected
    nonzero = (expected != 0) & np.isfinite(expected)
    if got.dtype.kind not in "fi" or nonzero.sum() < 2 or not close(got[~nonzero], expected[~nonzero]).all():
        return
    ratios = got[nonzero].astype(np.float64) / expected[nonzero]
    ratio = float(ratios.flat[0])
    if ratio == -1 and np.array_equal(got, -expected):
        yield values.WRONG_SIGN()
    elif ratio != 0 and _all_equal(ratios, ratio, got[nonzero], expected[nonzero]):
        cause = _factor(ratio, of.evidence.world_size, got.dtype.name)
        if not values.WRONG_FACTOR.explains([cause]) or len(np.unique(np.abs(expected[nonzero]))) > 1:
            yield cause  # equal numbers have any factor


def _factor(ratio: float, size: int, dtype: str) -> Cause:
    """The cause of one factor for all elements, which have this dtype."""
    if abs(ratio - 1) < _ROUNDED:
        return values.FEWER_BITS(dtype="float32", given=dtype, error=abs(ratio - 1))
    divisor = size / ratio
    whole = abs(divisor - round(divisor)) < 1e-4
    if size > 1 and 1.5 < divisor <= 2 * size and whole and round(divisor) != size:
        return values.WRONG_DIVISOR(divisor=round(divisor), world_size=size, factor=ratio)
    if abs(np.log2(abs(ratio))) in _LOSS_SCALES:
        return values.LOSS_SCALE_KEPT(factor=ratio)
    return values.WRONG_FACTOR(factor=ratio)


def _all_equal(ratios: Array, ratio: float, got: Array, expected: Array) -> bool:
    """Whether all ratios are one factor. A factor close to 1 might be lost precision, which leaves few bits, and rounds
    up and down; only numbers with different digits distinguish the two, by their last bits.
    """
    off = abs(ratio - 1)
    if off > _NEARLY_ONE:
        return bool(np.allclose(ratios, ratio, rtol=1e-5, atol=0))
    if all_fit(got, SUMS + (24 if got.itemsize == 8 else 11)):
        return False
    u = float(np.finfo(expected.dtype).eps) if expected.dtype.kind == "f" else 0.0
    different = len(np.unique(np.abs(np.frexp(expected.astype(np.float64))[0])))
    apart = max(4 * u, 0.02 * off if different > 2 else 0.0)
    return off > 64 * u > 0 and different > 1 and bool(np.allclose(ratios, ratio, rtol=0, atol=apart))


def _matching(of: WrongArray, factors: list[tuple[float, Given]]) -> Iterator[Given]:
    if of.got.dtype.kind in "fi" and of.expected.any():
        for value, cause in factors:
            if value != 1 and close(of.got, of.expected, value).all():
                yield cause
