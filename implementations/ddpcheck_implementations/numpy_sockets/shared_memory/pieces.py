"""Pieces of arrays, and reductions in rank order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddpcheck.seeded_values import Array


def reduce_into(arrays: Sequence[Array], target: Array, reduction: np.ufunc, divisor: int) -> None:
    """Reduce two or more arrays, in rank order, into `target`, which may be the first of them."""
    reduction(arrays[0], arrays[1], out=target)
    for other in arrays[2:]:
        reduction(target, other, out=target)
    if divisor > 1:
        divide(target, divisor)


def divide(array: Array, divisor: int) -> None:
    """Divide in place. By a power of two it multiplies by the exact inverse: the same bits in half the time."""
    if divisor & (divisor - 1):
        np.divide(array, divisor, out=array)
    else:
        np.multiply(array, 1 / divisor, out=array)


def pieces(start: int, stop: int, length: int) -> list[slice]:
    """Cut a range into slices of at most `length`. An empty range is one slice, so that ranks compare headers for it too."""
    return [slice(at, min(at + length, stop)) for at in range(start, stop, length)] or [slice(start, start)]
