"""The causes of a wrong number that is no element of an array."""

from __future__ import annotations

from collections.abc import Iterator

from ..causes import Cause
from .metrics.evidence import WrongMean
from .register import OF_A_MEAN, OF_A_MISSING_MEAN


def causes_of(of: WrongMean) -> Iterator[Cause]:
    """All that explain a mean of metrics, the likeliest first."""
    for hypothesis in OF_A_MISSING_MEAN if of.got is None else OF_A_MEAN:
        yield from hypothesis(of)
