"""Cutting arrays into pieces and adding them up in rank order, for all algorithms in shared memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddpcheck.seeded_values import Array


def reduce_into(arrays: Sequence[Array], target: Array, reduction: np.ufunc, divisor: int) -> None:
    """Two or more arrays, in rank order; the target may be the first of them."""
    reduction(arrays[0], arrays[1], out=target)
    for other in arrays[2:]:
        reduction(target, other, out=target)
    if divisor > 1:
        divide(target, divisor)


def divide(array: Array, divisor: int) -> None:
    """In place. The inverse of a power of two is exact, and to multiply by it gives the same bits in half the time."""
    if divisor & (divisor - 1):
        np.divide(array, divisor, out=array)
    else:
        np.multiply(array, 1 / divisor, out=array)


def pieces(start: int, stop: int, length: int) -> list[slice]:
    """The range in pieces of at most `length`; an empty one has one piece, so that its headers are compared too."""
    return [slice(at, min(at + length, stop)) for at in range(start, stop, length)] or [slice(start, start)]
