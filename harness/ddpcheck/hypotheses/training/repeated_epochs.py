"""Hypotheses about an epoch of a shuffled run that has the order of an earlier one."""

from __future__ import annotations

from ...causes import Cause, randomness, training


def epochs_counted_round(again: int) -> Cause | None:
    """again: the first such epoch. The epochs before it have orders of their own."""
    return training.samples.EPOCHS_COUNTED_ROUND() if again > 1 else None


def set_epoch_ignored(again: int) -> Cause:
    return randomness.SET_EPOCH_IGNORED()
