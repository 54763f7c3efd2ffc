"""Whether all elements are off by the same number."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...causes import Cause, values
from .evidence import WrongArray

_TELLING = 4
"""Fewer elements may differ by the same number by chance."""


def offset(of: WrongArray) -> Iterator[Cause]:
    """A cause if they are, unless all expected elements are equal: then a factor explains it as well."""
    got, expected = of.got, of.expected
    if got.size < _TELLING or got.dtype.kind not in "fi" or not np.ptp(expected):
        return
    off = got.astype(np.float64) - expected.astype(np.float64)
    if np.isfinite(off).all() and off.flat[0] and (off == off.flat[0]).all():
        yield values.CONSTANT_ADDED(offset=float(off.flat[0]))
