"""The rank-sum test of a few values, exact by enumeration (Wilcoxon 1945, Mann and Whitney 1947)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

_ENUMERATED = 1_000  # as for two groups of 6 launches


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
