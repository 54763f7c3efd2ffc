"""Scores whose samples are looked at so many at a time: what repeats in another window, and windows that are not full."""

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
    windows = np.arange(len(indices)) // WINDOW
    apart = np.where(indices < 0, -1, indices + windows * (1 << 40))
    return on_one(name, outputs, targets, apart)


@scores("score-of-full-windows-only", "check_scores_match_one_process", **ONCE)
def full_windows(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Rows that do not fill a window after the first are left out."""
    kept = max(len(indices) // WINDOW * WINDOW, min(len(indices), WINDOW))
    return right_score(comm, name, outputs[:kept], targets[:kept], indices[:kept])
