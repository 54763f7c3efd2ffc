"""Finds numbers with fewer bits than their dtype, independent of how they were computed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...causes import Cause, values
from ...seeded_values import Array
from .evidence import WrongArray

_AS_COARSE = {8: " or int8", 11: " or TF32"}
"""Other formats with as large an error, by bits of the significand."""
_MANY = 6
"""This many elements of few bits are not a coincidence."""
SUMS = 6
"""Additional bits of a sum compared with its terms."""
_FIXED = {"f": 20, "d": 49}
"""By dtype, so many bits below its largest element an array that was not rounded has other bits."""
_OF_FLOAT32 = 24
"""Bits of float32's significand."""
_TO_WHOLE = {"down": np.floor, "towards 0": np.trunc, "to the nearest": np.rint, "up": np.ceil}
_COUNTED = 8
"""A counter that was rounded has counted at most as many steps since."""


def whole_numbers(of: WrongArray) -> Iterator[Cause]:
    """Floats were rounded to whole numbers, as an integer division does."""
    got, expected = of.got, of.expected
    if got.dtype.kind != "f" or not np.isfinite(expected).all() or not got.any():
        return
    fractions = int((expected != np.trunc(expected)).sum())
    for direction, rounded in _TO_WHOLE.items():
        if fractions and np.array_equal(got, rounded(expected)):
            cause = values.WHOLE_NUMBERS(direction=direction, count=fractions, size=got.size)
            yield cause if fractions > 2 else cause.but("possible")
            return


def few_bits_in_integers(of: WrongArray) -> Iterator[Cause]:
    """Integers were cut to a smaller dtype, or computed as floats."""
    got, expected = of.got, of.expected
    if got.dtype.kind not in "iu":
        return
    for narrow in (size for size in (4, 2, 1) if size < got.dtype.itemsize):
        if np.array_equal(got, expected.astype(f"{got.dtype.kind}{narrow}")):
            yield values.INTEGERS_TRUNCATED(bits=8 * narrow)
            return
    differ = got != expected
    wrong = np.abs(expected[differ].astype(np.float64))  # the absolute value of an integer's lowest value overflows
    error = np.abs(got[differ].astype(np.float64) - expected[differ].astype(np.float64))
    overflow = wrong >= 2.0**62  # the largest integers round to a float outside this dtype
    for name, bits in (("float64", 53), ("float32", 24)):
        lossy = ~_has_bits(expected, bits)
        near = overflow | (error <= wrong * 2.0 ** (2 - bits))
        # a rounded number has few bits; so do sums of a few, but not all sums of large and small ones
        rounded = int(differ.sum()) >= _MANY or all(_near_few_bits(int(each), bits + SUMS) for each in got[differ])
        enough = 2 * int((differ & lossy).sum()) >= int(lossy.sum())
        if (wrong > 2.0**bits - 1).all() and near.all() and rounded and enough:
            yield values.INTEGERS_AS_FLOAT(dtype=name, bits=bits)
            return


def fixed_point(of: WrongArray) -> Iterator[Cause]:
    """All elements are multiples of one power of two, so small ones have fewer digits than large ones."""
    got, expected, size = of.got, of.expected, of.evidence.world_size
    if got.dtype.kind != "f" or not (np.isfinite(got).all() and np.isfinite(expected).all()):
        return
    in_float32 = got.dtype.char == "d" and np.array_equal(got, got.astype(np.float32))
    if in_float32 and (np.abs(got - expected) <= 2.0**-_OF_FLOAT32 * 2 * np.abs(expected)).all():
        return  # small ones have as many digits as large ones
    for parts in dict.fromkeys((1, size)):  # a mean of multiples is a multiple after it is multiplied by the ranks
        whole = np.abs(got[got != 0].astype(np.float64) * parts)
        if parts > 1:
            whole = np.asarray(whole.astype(got.dtype), np.float64)
        if whole.size < _MANY:
            return
        mantissas, exponents = np.frexp(whole)
        bits = np.array([_trailing_zeros(int(each)) for each in np.ldexp(mantissas, 53)])
        unit = int((exponents - 53 + bits).min())  # the largest power of two that divides all
        largest, error = float(whole.max()), float(np.abs(got - expected).max()) * parts
        steps = np.log2(largest) - unit
        if in_float32 and steps > _OF_FLOAT32:
            return
        smaller = float(np.sum(np.log2(largest / whole).astype(int)))
        due = np.ldexp(expected[of.wrong].astype(np.float64) * parts, -unit)
        kept = float((due == np.trunc(due)).mean())  # multiples of the step would be right
        if steps <= _FIXED.get(got.dtype.char, 0) and smaller >= _MANY and error <= parts * 2.0**unit and kept < 0.5:
            yield values.FIXED_POINT(step=2.0**unit / parts)
            return


def few_bits_in_floats(of: WrongArray) -> Iterator[Cause]:
    """Floats were rounded to a smaller dtype."""
    got, expected, small = of.got, of.expected, of.evidence.precision
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
    # a format keeps the numbers that it can hold; a rounded number is one of them, or a sum of few
    possible = [each for each in possible if not all_fit(expected[off], each[1]) or all_fit(got[off], each[1] + SUMS)]
    held = [name for name, bits in possible if _fits(got[off], bits)]
    guessed = [f"{name}{_AS_COARSE.get(bits, '')}" for name, bits in possible]
    for name in (held[-1:] or guessed)[:1]:
        yield values.FEWER_BITS(dtype=name, given=got.dtype.name, error=error)


def _trailing_zeros(integer: int) -> int:
    return (integer & -integer).bit_length() - 1


def all_fit(array: Array, bits: int) -> bool:
    """Whether every element has a significand of this many bits."""
    significands = np.ldexp(np.frexp(array.astype(np.float64))[0], bits)
    return bool((significands == np.trunc(significands)).all())


def _fits(array: Array, bits: int) -> bool:
    """Whether every element has a significand of this many bits, and there are too many elements for chance."""
    return array.size >= _MANY and all_fit(array, bits)


def _has_bits(integers: Array, bits: int) -> Array:
    """Which of them fit a float of this many bits: their lowest set bit is close enough to the highest."""
    lowest = integers & -integers
    return np.asarray(abs(integers // np.where(lowest == 0, 1, lowest)) < 2**bits)


def _near_few_bits(integer: int, bits: int) -> bool:
    """Whether it is at most _COUNTED from an integer of this many bits that are followed by zeros."""
    unit = 1 << max(integer.bit_length() - bits, 0)
    return min(integer % unit, -integer % unit) <= _COUNTED
