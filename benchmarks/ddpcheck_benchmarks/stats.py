"""Order statistics of a few launches, without assumptions about a distribution."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

_Z = 1.96


def summary(data: Sequence[float]) -> dict[str, Any]:
    """The fields of pytest-benchmark's `stats`, for at least one value in seconds."""
    ordered = sorted(data)
    middle, half = statistics.median(ordered), len(ordered) // 2
    q1 = statistics.median(ordered[:half] or ordered)
    q3 = statistics.median(ordered[-half:] if half else ordered)
    low, high = q1 - 1.5 * (q3 - q1), q3 + 1.5 * (q3 - q1)
    mean = statistics.fmean(ordered)
    deviation = statistics.stdev(ordered) if len(ordered) > 1 else 0.0
    beyond = sum(abs(value - mean) > deviation for value in ordered)
    outside = sum(not low <= value <= high for value in ordered)
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "mean": mean,
        "stddev": deviation,
        "rounds": len(ordered),
        "median": middle,
        "iqr": q3 - q1,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": outside,
        "stddev_outliers": beyond,
        "outliers": f"{beyond};{outside}",
        "ld15iqr": min(value for value in ordered if value >= low),
        "hd15iqr": max(value for value in ordered if value <= high),
        "ops": 1 / mean if mean else 0.0,
        "total": math.fsum(ordered),
        "data": list(data),
        "iterations": 1,
    }


def interval(data: Sequence[float]) -> tuple[float, float]:
    """A nonparametric 95 % interval of the median, from ranks (Hoefler and Belli 2015); the range of all data below 6
    values.
    """
    ordered, n = sorted(data), len(data)
    if n < 6:
        return ordered[0], ordered[-1]
    first = math.floor((n - _Z * math.sqrt(n)) / 2)
    last = math.ceil(1 + (n + _Z * math.sqrt(n)) / 2)
    return ordered[max(0, first - 1)], ordered[min(n, last) - 1]
