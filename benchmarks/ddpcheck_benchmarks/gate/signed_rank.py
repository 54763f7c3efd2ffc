"""Exact confidence bounds of a pseudo-median, by inverting Wilcoxon's signed-rank test.

Under the hypothesis that n values are symmetric about m, the number of Walsh averages (x_i + x_j) / 2, i <= j, above m
is distributed as W, the sum of those of the ranks 1 to n whose fair coin shows heads. So with k the largest number for
which P(W <= k) <= alpha, the k + 1 smallest Walsh averages are lower bounds of m, and the largest of them is the best.
Symmetry is the only assumption about the distribution. A bootstrap is too optimistic at 12 values.
"""

from __future__ import annotations

import functools

import numpy as np

from ddpcheck.seeded_values import Array


@functools.cache
def tail(n: int) -> Array:
    """P(W <= k) for k = 0 to n (n + 1) / 2: float64."""
    chances = np.zeros(n * (n + 1) // 2 + 1)
    chances[0] = 1.0
    for rank in range(1, n + 1):
        moved = np.zeros_like(chances)
        moved[rank:] = chances[:-rank]
        chances = (chances + moved) / 2
    return np.cumsum(chances)


def walsh_averages(values: Array) -> Array:
    """All n (n + 1) / 2 means of two values, a value with itself included, in ascending order."""
    first, second = np.triu_indices(len(values))
    averages: Array = np.sort((values[first] + values[second]) / 2)
    return averages


def pseudo_median(values: Array) -> float:
    """Hodges and Lehmann's estimate: the median of the Walsh averages."""
    return float(np.median(walsh_averages(values)))


def lower_bound(values: Array, alpha: float) -> float:
    """A bound that exceeds the pseudo-median with probability at most alpha; minus infinity for too few values."""
    at_most = int(np.searchsorted(tail(len(values)), alpha * (1 + 1e-12), side="right"))
    return float(walsh_averages(values)[at_most - 1]) if at_most else -float("inf")


def upper_bound(values: Array, alpha: float) -> float:
    """A bound that lies below the pseudo-median with probability at most alpha; infinity for too few values."""
    return -lower_bound(-values, alpha)
