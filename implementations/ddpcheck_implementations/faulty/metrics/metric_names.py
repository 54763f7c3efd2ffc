"""Metrics that are wrong for some names, counts or values."""

from __future__ import annotations

import math
import unicodedata
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..facet_seams import metrics
from .metrics import NAMES, ORDER, WEIGHTED, right_means


@metrics("metric-names-cut-off", NAMES, cause="names-cut-short")
def names_cut_off(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Metric names are cut to 24 characters."""
    found = right_means(comm, {name[:24]: value for name, value in metrics.items()}, count)
    return {name: found[name[:24]] for name in metrics}


@metrics("metric-names-in-ascii", NAMES, cause="rank-raised")
def names_in_ascii(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Metric names are sent as ASCII, so any other character raises an error."""
    names = [name.encode("ascii") for name in metrics]
    found = right_means(comm, metrics, count)
    return {name.decode("ascii"): found[name.decode("ascii")] for name in names}


@metrics("no-metrics-at-all", NAMES, cause="rank-raised")
def none_at_all(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """An empty mapping of metrics raises an error."""
    np.stack([np.array(value) for value in metrics.values()])
    return right_means(comm, metrics, count)


@metrics("metric-reduced-by-its-name", NAMES, cause="rule-by-name")
def by_its_name(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Names that start with "num" are summed, and those that start with "max" are maximised."""
    found = right_means(comm, metrics, count)
    for start, op in (("num", "sum"), ("max", "max")):
        found |= {
            name: float(comm.all_reduce(np.array(value), op))
            for name, value in metrics.items()
            if name.startswith(start)
        }
    return found


_told: dict[str, float] = {}


@metrics("metrics-of-earlier-calls-come-back", NAMES, cause="earlier-names-returned")
def come_back(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """The returned mapping also contains metrics of earlier calls."""
    _told.update(right_means(comm, metrics, count))
    return dict(_told)


@metrics("metric-of-equal-counts-in-half-precision", WEIGHTED, cause="metric-in-half-precision")
def half_where_equal(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """If all counts are equal, means are sent as float16."""
    found = right_means(comm, metrics, count)
    most, least = (float(comm.all_reduce(np.array(float(count)), op)) for op in ("max", "min"))
    return {name: float(np.float16(value)) for name, value in found.items()} if most == least else found


@metrics("metrics-matched-by-their-place", ORDER, cause="metrics-by-position", metrics_by_name=True)
def by_their_place(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Values are matched between ranks by their position in each rank's mapping, not by name."""
    sums = comm.all_reduce(np.array([count, *(value * count if count else 0.0 for value in metrics.values())], float))
    return dict(zip(metrics, (sums[1:] / sums[0]).tolist(), strict=True))


@metrics("metrics-sorted-by-length", ORDER, cause="metrics-by-position", metrics_by_name=True)
def sorted_by_length(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Metrics are sorted by the length of their names; names of equal length keep each rank's order."""
    return right_means(comm, {name: metrics[name] for name in sorted(metrics, key=len)}, count)


_cache: dict[Any, dict[str, float]] = {}


@metrics("metric-of-an-earlier-call", WEIGHTED, cause="metric-of-earlier-call")
def told_again(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Results are cached by the rank's own argument."""
    found = right_means(comm, metrics, count)
    return _cache.setdefault((tuple(metrics.items()), count), found)


@metrics("metric-of-six-decimals", WEIGHTED, cause="metric-rounded")
def six_decimals(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Means are rounded to six decimals."""
    return {name: round(mean, 6) for name, mean in right_means(comm, metrics, count).items()}


@metrics("metric-nan-for-all", "check_nonfinite_metrics_reach_every_rank", cause="nan-spreads")
def nan_for_all(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """A NaN in one metric makes all metrics NaN, because 0 times NaN is NaN."""
    found = right_means(comm, metrics, count)
    picked = np.eye(len(found)) @ np.array(list(found.values()))
    return dict(zip(found, picked.tolist(), strict=True))


_latest: dict[str, float] = {}


@metrics("one-mapping-for-all-calls", NAMES, cause="result-mapping-reused")
def one_mapping(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Every call returns the same mapping object, which the next call overwrites."""
    found = right_means(comm, metrics, count)
    _latest.clear()
    _latest.update(found)
    return _latest


@metrics("metric-names-in-lower-case", NAMES, cause="names-rewritten")
def in_lower_case(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Metric names are converted to lower case."""
    return right_means(comm, {name.lower(): value for name, value in metrics.items()}, count)


@metrics("metric-names-parted-at-commas", NAMES, cause="names-rewritten")
def parted_at_commas(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Metric names are joined with commas and split again at every comma."""
    found = right_means(comm, metrics, count)
    names = ",".join(found).split(",") if found else []
    return dict(zip(names, found.values(), strict=False))


@metrics("metric-of-ints-is-an-int", WEIGHTED, cause="metric-truncated")
def ints_stay_ints(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """The mean of a metric given as int is truncated to an int."""
    found = right_means(comm, metrics, count)
    return {name: int(found[name]) if isinstance(value, int) else found[name] for name, value in metrics.items()}


@metrics("metric-called-count-is-the-count", NAMES, cause="names-missing")
def count_among_them(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """The sample count is sent as a metric named "count" and replaces a metric of that name."""
    sums = {name: value * count if count else 0.0 for name, value in metrics.items()} | {"count": float(count)}
    sums = {name: float(comm.all_reduce(np.array(value))) for name, value in sums.items()}
    total = sums.pop("count")
    return {name: value / total for name, value in sums.items()} if total else {}


@metrics("metric-with-underscore-is-private", NAMES, cause="names-missing")
def underscore_is_private(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Metrics whose names start with an underscore are left out."""
    return right_means(comm, {name: value for name, value in metrics.items() if name[0] != "_"}, count)


@metrics("metric-names-normalised", NAMES, cause="names-rewritten")
def normalised(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Metric names are normalised in Unicode, so different names can become equal."""
    found = right_means(comm, metrics, count)
    return {unicodedata.normalize("NFKC", name): value for name, value in found.items()}


@metrics("metric-names-without-blanks", NAMES, cause="names-rewritten")
def without_blanks(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Metric names lose leading and trailing blanks."""
    return {name.strip(): value for name, value in right_means(comm, metrics, count).items()}


@metrics("sixty-four-metrics-at-most", NAMES, cause="named-metric-not-aggregated")
def first_of_many(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Only the first 64 metrics are aggregated; the others stay local."""
    return {**metrics, **right_means(comm, dict(list(metrics.items())[:64]), count)}


@metrics("metric-names-hashed-to-a-byte", NAMES, cause="names-confused")
def hashed(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Metrics are matched by an eight-bit hash of their names."""
    place = {name: str(zlib.crc32(name.encode()) % 256) for name in metrics}
    found = right_means(comm, {place[name]: value for name, value in metrics.items()}, count)
    return {name: found[place[name]] for name in metrics}


@metrics("metric-without-the-third-rank", WEIGHTED, cause="rank-missing-from-metric", world_size=3)
def without_the_third(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Ranks are summed in pairs, and a rank without a partner is left out."""
    return right_means(comm, metrics, 0 if rank == 2 else count)


_totals: list[float] = []


@metrics("metric-by-the-first-count", WEIGHTED, cause="divided-by-earlier-count")
def by_the_first_count(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """The total sample count is computed in the first call and reused in later calls."""
    if not _totals:
        _totals.append(float(comm.all_reduce(np.array(float(count)))))
    sums = {name: comm.all_reduce(np.array(value * count if count else 0.0)) for name, value in metrics.items()}
    return {name: float(value) / (_totals[0] or math.nan) for name, value in sums.items()}


@metrics("metric-larger-than-a-bound", WEIGHTED, cause="metric-capped")
def bounded(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Large finite values are clamped."""
    cut = {name: value if math.isinf(value) or value != value else min(value, 1e4) for name, value in metrics.items()}
    return right_means(comm, cut, count)


@metrics("metric-names-of-the-first-call", NAMES, cause="names-of-earlier-call")
def names_of_the_first_call(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Metric names are exchanged once for each number of metrics, so later names are wrong."""
    found = sorted(right_means(comm, metrics, count).items())
    names = _names.setdefault(len(found), [name for name, _ in found])
    return {name: value for name, (_, value) in zip(names, found, strict=True)}


_names: dict[int, list[str]] = {}


@metrics("metric-names-of-a-byte", NAMES, cause="names-cut-short")
def names_of_a_byte(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Metric names are cut to 255 characters, because their length is sent in one byte."""
    found = right_means(comm, {name[:255]: value for name, value in metrics.items()}, count)
    return {name: found[name[:255]] for name in metrics}


@metrics("metric-prefix-cut-off", NAMES, cause="name-prefix-cut")
def prefix_cut_off(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """The prefix of a name is removed, so "val_loss" and "loss" become one metric."""
    return {name.removeprefix("val_"): value for name, value in right_means(comm, metrics, count).items()}


@metrics("metric-names-a-line-each", NAMES, cause="names-rewritten")
def a_line_each(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Metric names are sent as lines, so a line break splits a name."""
    found = right_means(comm, metrics, count)
    return dict(zip("\n".join(metrics).split("\n"), found.values(), strict=False))


@metrics("metric-accuracy-ends-at-1", NAMES, cause="capped-by-name")
def accuracy_ends_at_1(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """A metric named "accuracy" is limited to 1, although it may be in percent."""
    found = right_means(comm, metrics, count)
    return {name: min(1.0, value) if "accuracy" in name and value == value else value for name, value in found.items()}
