"""Hypotheses about arrays whose memory layout is taken for another."""

from __future__ import annotations

from collections.abc import Iterator

from ...causes import Cause
from ...causes import collectives as causes
from ...seeded_values import Array


def as_laid_out(array: Array, sent: str, received: str) -> Iterator[tuple[Cause, Array]]:
    """An array whose elements go as they lie in memory, or are put there as they come."""
    if array.ndim:
        if sent == "F":
            yield causes.SENT_BY_COLUMNS(), array.ravel(order="F").reshape(array.shape)
        if received == "F":
            by_columns = array.ravel().reshape(array.shape, order="F")
            yield causes.RECEIVED_BY_ROWS(), by_columns
        if sent == "reversed" or received == "reversed":
            yield causes.REVERSED_IGNORED(), array[::-1]
