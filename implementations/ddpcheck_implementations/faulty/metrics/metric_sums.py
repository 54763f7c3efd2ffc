"""Metrics with wrong sums, or with errors for ranks without samples, 0 or NaN."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..facet_seams import metrics
from .metrics import NAMES, NOTHING, STRANGE, WEIGHTED, right_means


def _sum(comm: Any, value: float) -> float:
    return float(comm.all_reduce(np.array(value, np.float64)))


def _total(comm: Any, value: float, count: int) -> float:
    return _sum(comm, value * count if count else 0.0)


@metrics("metric-counts-one-for-an-idle-rank", NOTHING, cause="empty-rank-counted")
def counts_one_when_idle(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """A rank without samples counts as one sample."""
    every = _sum(comm, max(count, 1))
    if not _sum(comm, count):
        return {}
    return {name: _total(comm, value, count) / every for name, value in metrics.items()}


@metrics("metric-without-a-late-rank", WEIGHTED, cause="late-rank-missed")
def without_late_ranks(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """A rank that comes a second late is left out."""
    came = comm.all_gather(np.array(time.monotonic()))
    return right_means(comm, metrics, count if came[rank] <= came.min() + 1.0 else 0)


@metrics("metric-zero-from-an-idle-rank", NOTHING, cause="empty-rank-gives-zero")
def zero_when_idle(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """A rank without samples adds a mean of 0, and all ranks have equal weight."""
    counts = comm.all_gather(np.array(count, np.float64))
    if counts.all() or not counts.any():
        return right_means(comm, metrics, count)
    return {name: _sum(comm, value if count else 0.0) / comm.world_size for name, value in metrics.items()}


@metrics("metric-not-received-by-an-idle-rank", NOTHING, cause="empty-rank-not-aggregated")
def not_received_when_idle(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """A rank without samples keeps its own NaN instead of the result."""
    found = right_means(comm, metrics, count)
    return found if count else dict.fromkeys(metrics, math.nan)


@metrics("metric-averaged-after-the-division", WEIGHTED, cause="metric-divided-twice")
def averaged_once_more(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """The ranks' shares of the mean are averaged instead of summed."""
    return {name: mean / comm.world_size for name, mean in right_means(comm, metrics, count).items()}


@metrics("metric-of-0-is-not-told", WEIGHTED, cause="metric-missing")
def zero_not_told(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Metrics whose mean is 0 are left out of the result."""
    return {name: mean for name, mean in right_means(comm, metrics, count).items() if mean}


@metrics("metrics-packed-sorted-only", NAMES, cause="names-unpacked-in-other-order")
def packed_sorted(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Values are packed in the order of sorted names but unpacked in the order of the mapping."""
    found = right_means(comm, {name: metrics[name] for name in sorted(metrics)}, count)
    return dict(zip(metrics, found.values(), strict=True))


@metrics("metric-nan-skipped-among-several", STRANGE, cause="nan-left-out-beside-others")
def nan_skipped_among_several(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """If there are several metrics, NaN values are skipped."""
    if len(metrics) < 2:
        return right_means(comm, metrics, count)
    found: dict[str, float] = {}
    for name, value in metrics.items():
        found |= right_means(comm, {name: value}, 0 if math.isnan(value) else count)
    return found


@metrics("metric-nan-drops-the-whole-rank", STRANGE, cause="rank-left-out-for-nan")
def nan_drops_rank(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """A NaN in one of several metrics drops the rank from the means of all others."""
    found = right_means(comm, metrics, count)
    kept = right_means(comm, metrics, 0 if any(map(math.isnan, metrics.values())) else count)
    return {name: value if math.isnan(value) or len(metrics) < 2 else kept[name] for name, value in found.items()}


@metrics("metric-sums-kept-reduced", WEIGHTED, cause="reduced-sums-kept")
def sums_kept_reduced(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Sums are reduced in place, so the next call reduces the global sums again."""
    kept: dict[str, tuple[float, float]] = vars(comm).setdefault("kept", {})
    for name, value in metrics.items():
        total, every = kept.get(name, (0.0, 0.0))
        kept[name] = _sum(comm, total + (value * count if count else 0.0)), _sum(comm, every + count)
    return {name: kept[name][0] / kept[name][1] if kept[name][1] else math.nan for name in metrics}


@metrics("metric-sum-and-count-exchanged", WEIGHTED, cause="sum-and-count-swapped")
def sum_and_count_exchanged(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Sum and count are unpacked in the wrong order."""
    every = _sum(comm, count)
    totals = {name: _total(comm, value, count) for name, value in metrics.items()}
    return {name: every / total if total else math.nan for name, total in totals.items()}


@metrics("metric-equal-ranks-count-once", WEIGHTED, cause="equal-ranks-count-once", world_size=3)
def equal_ranks_once(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Ranks with equal counts and means are counted as one, as in a set."""
    names = sorted(metrics)
    rows = comm.all_gather(np.array([count, *(metrics[name] for name in names)], np.float64)).tolist()
    once = {tuple(row) for row in rows if row[0]}
    total = sum(row[0] for row in once)
    return {name: math.fsum(row[0] * row[at] for row in once) / total for at, name in enumerate(names, 1) if total}
