"""Lost precision: finds by the bits the dtype through which the ranks' parts or their sum went.

The size of the error alone does not distinguish bfloat16 from float16, or from integers of 8 bits: it may be small by
chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ...causes import Cause, values
from ...seeded_values import Array
from .evidence import WrongArray

Rounding = Callable[[Array], Array]
_MATCHING = 0.9
"""Share of the elements: a value between two narrow ones may round the other way because of a last bit."""
_LAST_BITS = 16


def narrowed(of: WrongArray) -> Iterator[Cause]:
    """The dtype in which the ranks' parts were sent, if it alone explains every bit."""
    got, expected, parts = of.got, of.expected, of.others
    if parts is None:
        return
    size = len(parts)
    if got.dtype.char not in "df" or parts.shape[1:] != got.shape or not np.isfinite(got).all():
        return
    total, unit = parts.sum(axis=0), float(np.finfo(got.dtype).eps)
    near = 64 * unit * max(float(np.abs(expected).max(initial=0.0)), 1e-300)
    factor = next((by for by in (1.0 / size, 1.0) if np.abs(total * by - expected).max(initial=0.0) <= near), None)
    if factor is None or not got.any():
        return
    for cause, rounded in _candidates(parts, factor, got.dtype.name):
        allowed = _LAST_BITS * unit * np.maximum(np.abs(parts).max(axis=0) * factor, np.abs(rounded))
        if np.abs(rounded - expected).max() > near and (np.abs(got - rounded) <= allowed).mean() >= _MATCHING:
            yield cause


def sent_as(of: WrongArray) -> Iterator[Cause]:
    """The dtype through which copied data went, if it gives every bit."""
    got, expected = of.got, of.expected
    for name, made in _WAYS.get(got.dtype.name, ()):
        with np.errstate(all="ignore"):
            there_and_back = made(expected).astype(got.dtype)
        if np.array_equal(got, there_and_back, equal_nan=got.dtype.kind == "f"):
            yield values.SENT_AS(dtype=name)


def _candidates(parts: Array, factor: float, given: str) -> Iterator[tuple[Cause, Array]]:
    for name, rounded in _SHORT:
        before, both, after = (
            values.ROUNDED_AS(rounded=what, dtype=name, given=given)
            for what in ("Each rank's part is", "Each rank's part and the result are", "The result is")
        )
        yield before, rounded(parts).sum(axis=0) * factor
        yield before, rounded(parts * factor).sum(axis=0)
        yield both, rounded(rounded(parts * factor).sum(axis=0))
        yield both, rounded(rounded(parts).sum(axis=0) * factor)
        yield after, rounded(parts.sum(axis=0) * factor)
    largest = np.abs(parts).max(axis=tuple(range(1, parts.ndim)), keepdims=True, initial=0.0)
    for whose, scale in (("each rank", largest), ("all ranks", largest.max(axis=0, keepdims=True))):
        yield values.SENT_AS_INT8(scaled_by=whose), _steps(parts, scale) * factor


def _steps(parts: Array, largest: Array) -> Array:
    step = np.where(largest > 0, largest, 1.0) / 127
    return np.asarray((np.rint(parts / step) * step).sum(axis=0))


def as_float16(array: Array) -> Array:
    with np.errstate(over="ignore"):
        return array.astype(np.float16).astype(np.float64)


def as_bfloat16(array: Array) -> Array:
    """Rounded to nearest, ties to even: 8 bits of significand, in the range of float32."""
    bits = np.asarray(array, np.float32).view(np.uint32)
    even = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    rounded = np.asarray(even & np.uint32(0xFFFF0000), np.uint32).view(np.float32)
    return np.where(np.isnan(array), np.nan, rounded)


def _as(dtype: str) -> Rounding:
    return lambda array: array.astype(dtype)


_SHORT = ("float16", as_float16), ("bfloat16", as_bfloat16)
_FLOATS = ("float64", _as("float64")), ("float32", _as("float32"))
_WAYS = {"float64": (_FLOATS[1], *_SHORT), "float32": _SHORT, "int64": _FLOATS, "int32": (_FLOATS[1],)}
"""By dtype, the narrower dtypes and the conversion of an array to each, widest first."""
