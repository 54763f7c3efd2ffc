"""The mean of metrics over the samples of all ranks, as one process computes it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..job import Aggregate


def mean_of(all_made: Sequence[Aggregate]) -> float:
    """The mean over the samples of all these operations."""
    pairs = [pair for made in all_made for pair in zip(made.values, made.counts, strict=True) if pair[1]]
    return math.fsum(value * count for value, count in pairs) / sum(count for _, count in pairs)
