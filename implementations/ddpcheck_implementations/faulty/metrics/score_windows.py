"""Scores that process samples in windows, and are wrong across windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..facet_seams import scores
from .scores import TWICE, on_one, right_score, together

ONCE: dict[str, Any] = {"scores_count_once": True, "scores_skip_padding": True}
WINDOW = 32


@scores("score-duplicates-removed-window-by-window", TWICE, **ONCE)
def window_by_window(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Duplicates are removed only within windows of 32 rows."""
    outputs, targets, indices = together(comm, outputs, targets, indices)
    return on_one(name, outputs, targets, _apart(indices, WINDOW))


@scores("score-duplicates-removed-in-windows-of-128", TWICE, cause="duplicates-counted", **ONCE)
def in_large_windows(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """A sample counts once in each of a rank's windows of 128 rows."""
    return right_score(comm, name, outputs, targets, _apart(indices, 128))


def _apart(indices: Array, window: int) -> Array:
    """Indices that name a sample differently in each window."""
    return np.asarray(np.where(indices < 0, -1, indices + np.arange(len(indices)) // window * (1 << 40)))


@scores("score-of-full-windows-only", "check_scores_match_one_process", **ONCE)
def full_windows(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Rows that do not fill a window after the first are left out."""
    kept = max(len(indices) // WINDOW * WINDOW, min(len(indices), WINDOW))
    return right_score(comm, name, outputs[:kept], targets[:kept], indices[:kept])


@scores("score-loses-a-last-window-that-is-full", "check_scores_match_one_process", cause="samples-limited", **ONCE)
def full_last_window(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """The last window of 64 rows is cut to the remainder, which is 0 if the window is full."""
    kept = len(indices) - (64 if len(indices) and not len(indices) % 64 else 0)
    return right_score(comm, name, outputs[:kept], targets[:kept], indices[:kept])
