"""Says in words which implementations a measurement tells apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median

from ddpcheck.printable_text import in_markdown
from ddpcheck.rank_sum import larger

_SIGNIFICANT = 0.05
_FEWEST = 4
"""Launches of each of two implementations with which a difference can be significant."""


def told_apart(what: str, seconds: Mapping[str, Sequence[float]]) -> str:
    """A sentence on neighbours in the order of their medians, by a rank-sum test over launches; empty for fewer than two.

    seconds: of each launch, by implementation.
    """
    ordered = sorted(seconds, key=lambda name: median(seconds[name]))
    parts = [_compared(a, seconds[a], b, seconds[b]) for a, b in pairwise(ordered)]
    return f"{what}: {'; '.join(parts)} (rank-sum tests over launches)." if parts else ""


def _compared(fast: str, seconds: Sequence[float], slow: str, more: Sequence[float]) -> str:
    names = in_markdown(fast), in_markdown(slow)
    if min(len(seconds), len(more)) < _FEWEST:
        return f"{names[0]} and {names[1]} need {_FEWEST} launches each to be told apart"
    p = min(1.0, 2 * larger(more, seconds))  # the medians have chosen which one to call fast
    if p <= _SIGNIFICANT:
        return f"{names[0]} is {median(more) / median(seconds):.2f} x as fast as {names[1]}, p = {p:.2g}"
    return f"{names[0]} and {names[1]} are not told apart, p = {p:.2g}"
