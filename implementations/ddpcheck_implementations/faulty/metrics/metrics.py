"""Metrics that are not the mean over all samples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..facet_seams import metrics

WEIGHTED = "check_metrics_are_weighted_by_counts"
NOTHING = "check_metrics_ignore_ranks_without_samples"
NO_NUMBER = "check_metrics_without_samples_are_empty_or_nan"
EQUAL = "check_metrics_are_bitwise_equal_on_all_ranks"
NAMES = "check_several_metrics_keep_their_names"
ORDER = "check_metrics_are_matched_by_name_not_order"
STRANGE = "check_nonfinite_metrics_reach_every_rank"


def _sum(comm: Any, value: float) -> float:
    return float(comm.all_reduce(np.array(value, np.float64)))


def _weighted(comm: Any, metrics: Mapping[str, float], count: int, total: float) -> dict[str, float]:
    """The sums over all samples, divided by `total`."""
    return {name: _sum(comm, value * count if count else 0.0) / total for name, value in metrics.items()}


def right_means(comm: Any, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    return _weighted(comm, metrics, count, _sum(comm, count) or math.nan)


@metrics("metric-mean-of-means", WEIGHTED, NOTHING, NO_NUMBER, cause="mean-of-rank-means")
def mean_of_means(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Local means are averaged with equal weights, whatever their counts."""
    return {name: _sum(comm, value) / comm.world_size for name, value in metrics.items()}


@metrics("metric-not-divided", WEIGHTED, NO_NUMBER, cause="metric-not-divided")
def not_divided(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """The result is the sum over all samples instead of the mean."""
    return _weighted(comm, metrics, count, 1.0)


@metrics("metric-on-rank-0-only", WEIGHTED, EQUAL, cause="metric-not-aggregated")
def on_rank_0_only(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Means are reduced to rank 0, and the other ranks keep their own."""
    found = right_means(comm, metrics, count)
    return found if rank == 0 else metrics


@metrics("metric-nan-of-empty-rank", NOTHING, cause="nonfinite-of-empty-rank")
def nan_of_empty_rank(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """A rank without samples multiplies its NaN by 0, which makes the mean NaN."""
    total = _sum(comm, count) or math.nan
    return {name: _sum(comm, value * count) / total for name, value in metrics.items()}


@metrics("metric-division-by-zero", NO_NUMBER, cause="rank-raised")
def division_by_zero(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Without samples on any rank, the division by 0 raises an error."""
    return _weighted(comm, metrics, count, _sum(comm, count))


@metrics("metric-out-of-nothing", NO_NUMBER, cause="number-without-samples")
def out_of_nothing(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Without samples on any rank, the mean is 0."""
    return _weighted(comm, metrics, count, max(1.0, _sum(comm, count)))


@metrics("metric-added-in-own-order", EQUAL, cause="ranks-add-in-other-order", world_size=3)
def added_in_own_order(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Every rank starts the sum with its own value, so the last bits differ between ranks."""
    counts = np.roll(comm.all_gather(np.array(count, np.float64)), -rank)
    if not counts.any():
        return {}
    found = {}
    for name, value in metrics.items():
        values = np.roll(comm.all_gather(np.array(value, np.float64)), -rank)
        total = 0.0
        for one, number in zip(values.tolist(), counts.tolist(), strict=True):
            total += one * number if number else 0.0
        found[name] = total / float(counts.sum())
    return found


@metrics("metric-nan-left-out", STRANGE, cause="nonfinite-left-out")
def nan_left_out(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """A rank whose value is NaN is left out, so a diverged run looks healthy."""
    return right_means(comm, metrics, 0 if any(map(math.isnan, metrics.values())) else count)


@metrics("metric-in-half-precision", WEIGHTED)
def in_half_precision(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Means are sent as float16."""
    return right_means(comm, {name: float(np.float16(value)) for name, value in metrics.items()}, count)


@metrics("metric-count-in-a-byte", WEIGHTED)
def count_in_a_byte(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Counts are sent in one byte and wrap at 256."""
    return right_means(comm, metrics, count % 256)


@metrics("metric-of-zero-is-none", WEIGHTED, cause="zero-mean-ignored")
def zero_is_none(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """A value of 0 counts as missing."""
    told = {name: _sum(comm, count if value else 0) for name, value in metrics.items()}
    sums = {name: _sum(comm, value * count if count else 0.0) for name, value in metrics.items()}
    some = _sum(comm, count) > 0
    return {name: sums[name] / told[name] if told[name] else 0.0 for name in metrics} if some else {}


@metrics("metric-running-mean")
def running_mean(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Correct: a running mean passes from rank to rank, with more roundings than a division of sums."""
    found: dict[str, float] = {}
    for name, value in metrics.items():
        seen = 0.0
        for mean, weight in comm.all_gather(np.array([value, count], np.float64)).tolist():
            if weight:
                seen += weight
                found[name] = found[name] + (mean - found[name]) * weight / seen if name in found else mean
    return found


@metrics("metric-in-single-precision")
def in_single_precision(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Correct: sums and counts are sent as float32."""
    sums = comm.all_reduce(
        np.array([*(value * count if count else 0.0 for value in metrics.values()), count], np.float32)
    )
    return {name: float(total / sums[-1]) for name, total in zip(metrics, sums, strict=False)} if sums[-1] else {}


@metrics("metric-nan-for-nothing")
def correct(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Correct: without samples on any rank, the result is NaN instead of an empty mapping."""
    return right_means(comm, metrics, count)


@metrics(
    "metrics-packed-in-the-order-of-a-set",
    NAMES,
    seen_in=("NVIDIA/nvalchemi-toolkit#143",),
    cause="metrics-mixed-up",
)
def packed_by_set(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Metrics are packed in the order of a set of names, which differs between processes."""
    names = list(set(metrics))
    sums = comm.all_reduce(np.array([*(metrics[name] * count if count else 0.0 for name in names), count]))
    return {name: float(total / sums[-1]) for name, total in zip(names, sums, strict=False)} if sums[-1] else {}


@metrics("first-metric-only", NAMES, cause="named-metric-not-aggregated")
def first_only(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Only the first metric is aggregated; the others stay local."""
    return dict(metrics) | right_means(comm, dict(list(metrics.items())[:1]), count)


@metrics(
    "caller-s-metrics-overwritten",
    NAMES,
    seen_in=("Lightning-AI/pytorch-lightning#5759",),
    cause="metrics-written-into-argument",
)
def overwritten(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """The global means are written into the caller's mapping."""
    assert isinstance(metrics, dict)
    metrics.update(right_means(comm, metrics, count))
    return metrics


@metrics("metric-count-in-32-bits", WEIGHTED, cause="count-overflows")
def counted_in_32_bits(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Counts are summed as int32 and overflow."""
    total = int(comm.all_reduce(np.array(count).astype(np.int32)))
    return _weighted(comm, metrics, count, total or math.nan)


@metrics("metric-infinity-of-empty-rank", NOTHING, cause="nonfinite-of-empty-rank")
def infinity_of_empty_rank(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """A rank without samples that passes an infinity makes the mean NaN."""
    total = _sum(comm, count) or math.nan
    kept = {name: 0.0 if count == 0 and math.isnan(value) else value for name, value in metrics.items()}
    return {name: _sum(comm, value * count) / total for name, value in kept.items()}


@metrics("metric-sums-never-reset", WEIGHTED, cause="metric-accumulates-calls")
def never_reset(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Sums are never reset, so each call includes all earlier calls."""
    sums: dict[str, list[float]] = vars(comm).setdefault("sums", {})
    total = _sum(comm, count)
    found = {}
    for name, value in metrics.items():
        kept = sums.setdefault(name, [0.0, 0.0])
        kept[0] += _sum(comm, value * count if count else 0.0)
        kept[1] += total
        found[name] = kept[0] / kept[1] if kept[1] else math.nan
    return found


@metrics("metric-count-in-half-precision", WEIGHTED, cause="metric-imprecise")
def counted_in_half(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Counts are sent as float16, which rounds those from 2,049 on."""
    near = int(np.float16(count)) if count < 65504 else count
    return right_means(comm, metrics, near)


@metrics("sixteen-metrics-at-most", NAMES, cause="named-metric-not-aggregated")
def first_sixteen(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Only the first 16 metrics are aggregated; the others stay local."""
    return {**metrics, **right_means(comm, dict(list(metrics.items())[:16]), count)}
