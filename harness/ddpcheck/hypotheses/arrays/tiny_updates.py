"""Whether an update went only a tiny part of its way."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...causes import Cause, values
from .evidence import WrongArray

_AT_MOST = 1 / 64
_SEEN = 8
"""It must have moved by this many last bits of the largest element; otherwise rounding explains it."""


def crept(of: WrongArray) -> Iterator[Cause]:
    """A cause if all elements went one share of their way, of at most a sixty-fourth, up to their last bits."""
    got, expected, before = of.got, of.expected, of.evidence.before
    if before is None or before.shape != got.shape or got.dtype.kind != "f":
        return
    old = before.astype(np.float64)
    went, way = got.astype(np.float64) - old, expected.astype(np.float64) - old
    if not way.any() or not np.isfinite(went).all():
        return
    bit = float(np.spacing(np.abs(got).max()))
    share = float((went * way).sum() / (way**2).sum())
    if (
        0 < share <= _AT_MOST
        and share * np.abs(way).max() >= _SEEN * bit
        and (abs(went - share * way) <= 2 * bit).all()
    ):
        yield values.TINY_UPDATE(shrunk=1 / share)
