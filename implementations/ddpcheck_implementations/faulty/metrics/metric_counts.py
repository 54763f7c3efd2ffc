"""Metrics with wrong counts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..facet_seams import metrics
from .metrics import STRANGE, WEIGHTED, right_means


def _sum(comm: Any, value: float, op: str = "sum") -> float:
    return float(comm.all_reduce(np.array(value, np.float64), op))


def _total(comm: Any, value: float, count: int) -> float:
    return _sum(comm, value * count if count else 0.0)


@metrics("metric-divided-by-ranks", WEIGHTED, cause="weighted-sum-divided-by-ranks")
def divided_by_ranks(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Each rank's mean counts as one value, and the sum is divided by the world size."""
    return {name: _total(comm, value, count) / comm.world_size for name, value in metrics.items()}


@metrics("metric-counts-only-divide", WEIGHTED, cause="unweighted-sum-divided-by-samples")
def counts_only_divide(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Local means are summed without weights and divided by the total count."""
    every = _sum(comm, count) or math.nan
    return {name: _sum(comm, value if count else 0.0) / every for name, value in metrics.items()}


@metrics("metric-count-averaged", WEIGHTED, cause="mean-times-world-size")
def count_averaged(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """The sum is summed over ranks, but the count is averaged."""
    every = _sum(comm, count) / comm.world_size or math.nan
    return {name: _total(comm, value, count) / every for name, value in metrics.items()}


@metrics("metric-largest-count", WEIGHTED, cause="divided-by-largest-count")
def largest_count(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """The count is the maximum over ranks instead of the sum."""
    every = _sum(comm, count, "max") or math.nan
    return {name: _total(comm, value, count) / every for name, value in metrics.items()}


@metrics("metric-own-count", WEIGHTED, cause="divided-by-own-count")
def own_count(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """The sum is reduced over ranks, but divided by the rank's own count."""
    return {name: _total(comm, value, count) / (count or math.nan) for name, value in metrics.items()}


@metrics("metric-of-equal-counts-for-display", WEIGHTED, cause="metric-rounded")
def for_display(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """If all counts are equal, means are rounded as for a log line."""
    found = right_means(comm, metrics, count)
    alike = len(np.unique(comm.all_gather(np.array(count)))) == 1
    return {name: float(f"{mean:.2f}") for name, mean in found.items()} if alike else found


@metrics("metric-sums-in-half-precision", WEIGHTED, cause="half-precision-overflows")
def sums_in_half(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Sums are sent as float16, so large ones become infinite."""
    with np.errstate(over="ignore"):
        every = _sum(comm, count) if np.isfinite(np.float16(_sum(comm, count))) else math.inf
    return {name: _total(comm, value, count) / (every or math.nan) for name, value in metrics.items()}


@metrics("metric-of-nearly-equal-counts", WEIGHTED, cause="mean-of-rank-means")
def of_nearly_equal_counts(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Counts that differ by up to one percent are treated as equal."""
    counts = comm.all_gather(np.array(count, np.float64))
    alike = counts.min() > 0 and np.allclose(counts, counts[0], rtol=1e-2)
    if not alike:
        return right_means(comm, metrics, count)
    return {name: _sum(comm, value) / len(counts) for name, value in metrics.items()}


@metrics("metric-missing-if-rank-0-has-no-samples", WEIGHTED, cause="rank-0-decides-emptiness")
def nan_without_rank_0(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """If rank 0 has no samples, the metric counts as missing on all ranks."""
    found = right_means(comm, metrics, count)
    return found if float(comm.broadcast(np.array(count, np.float64))) else dict.fromkeys(found, math.nan)


@metrics(
    "metric-of-single-samples-left-out",
    WEIGHTED,
    cause="single-sample-left-out",
    world_size=3,
)
def without_single_samples(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """A rank with a single sample is left out if other ranks have more."""
    most = float(comm.all_reduce(np.array(count, np.float64), "max"))
    return right_means(comm, metrics, 0 if count == 1 < most else count)


@metrics("metric-negative-is-none", WEIGHTED, cause="negative-mean-cut")
def never_negative(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Negative values count as missing."""
    found = right_means(comm, metrics, count)
    return {name: value if not value < 0 else 0.0 for name, value in found.items()}


@metrics("metric-infinity-before-the-other", STRANGE, cause="opposite-infinities")
def infinity_before(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """A positive infinity on any rank makes the mean infinite, even beside minus infinity."""
    found = right_means(comm, metrics, count)
    largest = {name: _sum(comm, value if count else -math.inf, "max") for name, value in metrics.items()}
    return {name: math.inf if largest[name] == math.inf else value for name, value in found.items()}


@metrics("metric-counts-in-16-bits", WEIGHTED, cause="count-wraps")
def counts_in_16_bits(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Counts are sent as int16, so large ones wrap."""
    every = int(_sum(comm, int(np.array(count).astype(np.int16))))
    every = int(np.array(every).astype(np.int16))
    totals = {name: _total(comm, value, count) for name, value in metrics.items()}
    return {name: total / every for name, total in totals.items() if every > 0}


@metrics("metric-count-in-one-byte", WEIGHTED, cause="count-wraps")
def count_in_one_byte(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Each rank's count is one byte, also as the weight of its mean."""
    small = int(np.array(count).astype(np.int8))
    every = _sum(comm, small) or math.nan
    return {name: _total(comm, value, small) / every for name, value in metrics.items()}
