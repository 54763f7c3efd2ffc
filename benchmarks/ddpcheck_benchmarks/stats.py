"""Order statistics of a few launches, without assumptions about a distribution."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import combinations
from typing import Any

_Z = 1.96
_ENUMERATED = 1_000  # as for two groups of 6 launches


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


def larger(a: Sequence[float], b: Sequence[float]) -> float:
    """One-sided p of the rank-sum test: the probability that values of `a` lie this far above those of `b` if both have
    equal distributions.

    Exact by enumeration for few values, with ties counted half; otherwise by the normal approximation.
    """
    statistic = _above(a, b)
    n, m = len(a), len(b)
    if math.comb(n + m, n) > _ENUMERATED:
        spread = math.sqrt(n * m * (n + m + 1) / 12)
        return 0.5 * math.erfc((statistic - n * m / 2 - 0.5) / spread / math.sqrt(2))
    everything = [*a, *b]
    as_far = total = 0
    for chosen in combinations(range(n + m), n):
        taken = set(chosen)
        first = [everything[i] for i in chosen]
        second = [value for i, value in enumerate(everything) if i not in taken]
        total += 1
        as_far += _above(first, second) >= statistic
    return as_far / total


def _above(a: Sequence[float], b: Sequence[float]) -> float:
    return sum((x > y) + 0.5 * (x == y) for x in a for y in b)
