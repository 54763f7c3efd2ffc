"""Metrics that are right for short names, some names, some counts, or some values only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .facets import metrics
from .metrics import NAMES, WEIGHTED, right_means


@metrics("metric-names-cut-off", "classic", NAMES, words="names that begin alike are taken for one")
def names_cut_off(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Names are sent in fields of 24 characters."""
    found = right_means(comm, {name[:24]: value for name, value in metrics.items()}, count)
    return {name: found[name[:24]] for name in metrics}


@metrics("metric-names-in-ascii", "classic", NAMES, words="UnicodeEncodeError")
def names_in_ascii(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Names are bytes of ASCII on the way."""
    names = [name.encode("ascii") for name in metrics]
    found = right_means(comm, metrics, count)
    return {name.decode("ascii"): found[name.decode("ascii")] for name in names}


@metrics("no-metrics-at-all", "classic", NAMES, words="need at least one array")
def none_at_all(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """All values are stacked, and there is one at least."""
    np.stack([np.array(value) for value in metrics.values()])
    return right_means(comm, metrics, count)


@metrics("metric-reduced-by-its-name", "classic", NAMES, words="not the mean, but the sum, an extreme")
def by_its_name(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """What begins with "num" is a number to be added up, and with "max" one to take the largest of."""
    found = right_means(comm, metrics, count)
    for start, op in (("num", "sum"), ("max", "max")):
        found |= {
            name: float(comm.all_reduce(np.array(value), op))
            for name, value in metrics.items()
            if name.startswith(start)
        }
    return found


_told: dict[str, float] = {}


@metrics("metrics-of-earlier-calls-come-back", "classic", NAMES, words="names that were not passed come back")
def come_back(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """One mapping is updated with every call, and returned."""
    _told.update(right_means(comm, metrics, count))
    return dict(_told)


@metrics("metric-of-equal-counts-in-half-precision", "classic", WEIGHTED, words="half precision")
def half_where_equal(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Where the ranks have equally many samples a short way is taken, in float16."""
    found = right_means(comm, metrics, count)
    most, least = (float(comm.all_reduce(np.array(float(count)), op)) for op in ("max", "min"))
    return {name: float(np.float16(value)) for name, value in found.items()} if most == least else found


_cache: dict[Any, dict[str, float]] = {}


@metrics("metric-of-an-earlier-call", "classic", WEIGHTED, words="the mean of an earlier call")
def told_again(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Results are kept by what this rank has passed, whatever the others have."""
    found = right_means(comm, metrics, count)
    return _cache.setdefault((tuple(metrics.items()), count), found)


@metrics("metric-of-six-decimals", "classic", WEIGHTED, words="rounded to so many decimals")
def six_decimals(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Means are rounded for the log: a small learning rate is 0."""
    return {name: round(mean, 6) for name, mean in right_means(comm, metrics, count).items()}


@metrics("metric-nan-for-all", "classic", "check_a_metric_that_is_no_number_stays_one", words="spreads to metrics")
def nan_for_all(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """A product of matrices sums all metrics: 0 times NaN is NaN."""
    found = right_means(comm, metrics, count)
    picked = np.eye(len(found)) @ np.array(list(found.values()))
    return dict(zip(found, picked.tolist(), strict=True))


_latest: dict[str, float] = {}


@metrics("one-mapping-for-all-calls", "classic", NAMES, words="one mapping is returned again and again")
def one_mapping(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """What is returned is filled anew by the next call."""
    found = right_means(comm, metrics, count)
    _latest.clear()
    _latest.update(found)
    return _latest


@metrics("metric-names-in-lower-case", "classic", NAMES, words="names come back written otherwise")
def in_lower_case(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Names are columns of a table, which knows no capitals."""
    return right_means(comm, {name.lower(): value for name, value in metrics.items()}, count)


@metrics("metric-names-parted-at-commas", "classic", NAMES, words="names come back written otherwise")
def parted_at_commas(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """All names are sent in one line."""
    found = right_means(comm, metrics, count)
    names = ",".join(found).split(",") if found else []
    return dict(zip(names, found.values(), strict=False))
