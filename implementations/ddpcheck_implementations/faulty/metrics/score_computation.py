"""Scores of the right samples, with a formula that is wrong for some inputs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..facet_seams import scores
from .scores import ALL_SAMPLES, PADDING, on_one, right_score, together


@scores("accuracy-of-two-classes-by-a-threshold", ALL_SAMPLES, cause="second-output-thresholded")
def by_a_threshold(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Accuracy of two classes uses a threshold on one output instead of the larger output."""
    if name == "accuracy" and outputs.shape[1] == 2:
        outputs = np.stack([np.zeros(len(outputs), np.float32), outputs[:, 1]], axis=1)
    return right_score(comm, name, outputs, targets, indices)


@scores("f1-of-the-second-of-two-classes", ALL_SAMPLES, cause="binary-f1")
def of_the_second(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """With two classes, F1 is that of the second class instead of the mean."""
    outputs, targets, indices = together(comm, outputs, targets, indices)
    if name != "f1_macro" or not len(outputs) or outputs.shape[1] != 2:
        return on_one(name, outputs, targets, indices)
    guessed = outputs.argmax(axis=1)
    return float(2 * (guessed & targets).sum() / max(1, guessed.sum() + targets.sum()))


@scores("rmse-from-squares-of-each", ALL_SAMPLES, cause="squares-summed-apart")
def from_squares_of_each(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """RMSE is computed from sums of squares and products, whose difference loses precision."""
    outputs, targets, indices = together(comm, outputs, targets, indices)
    if name != "rmse" or not len(outputs):
        return on_one(name, outputs, targets, indices)
    square = np.mean(outputs * outputs) - 2 * np.mean(outputs * targets) + np.mean(targets * targets)
    return math.nan if np.isnan(square) else math.sqrt(max(0.0, float(square)))


@scores("rmse-averaged-over-outputs", ALL_SAMPLES, cause="root-of-each-output")
def averaged_over_outputs(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """RMSE is the mean of each output's own RMSE."""
    outputs, targets, indices = together(comm, outputs, targets, indices)
    if name != "rmse" or not len(outputs):
        return on_one(name, outputs, targets, indices)
    return float(np.sqrt(np.square(outputs.astype(np.float64) - targets).mean(axis=0)).mean())


@scores("rmse-of-a-column-less-a-row", ALL_SAMPLES, cause="outputs-broadcast")
def column_less_row(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """With one output, RMSE subtracts a row from a column and so compares all pairs."""
    outputs, targets, indices = together(comm, outputs, targets, indices)
    if name != "rmse" or outputs.shape != (len(outputs), 1) or not len(outputs):
        return on_one(name, outputs, targets, indices)
    return float(np.sqrt(np.square(outputs.astype(np.float64) - targets[:, 0]).mean()))


@scores("auc-of-one-output", ALL_SAMPLES, cause="one-output-compared")
def of_one_output(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """AUC uses the output of class 1 alone, not the difference of both outputs."""
    if name == "auc":
        outputs = np.stack([np.zeros(len(outputs), np.float32), outputs[:, 1]], axis=1)
    return right_score(comm, name, outputs, targets, indices)


@scores("padding-multiplied-by-zero", PADDING, cause="padding-times-nan", scores_skip_padding=True)
def multiplied_by_zero(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Padding rows are multiplied by 0 and added, so a NaN in padding spoils the score."""
    if name != "rmse":
        return right_score(comm, name, outputs, targets, indices)
    there = (indices >= 0)[:, None]
    total = np.sum(np.square(outputs.astype(np.float64) - targets) * there)
    total, count = comm.all_reduce(np.array([total, there.sum() * outputs.shape[1]], np.float64)).tolist()
    return math.sqrt(total / count) if count else math.nan


@scores("last-class-is-the-background", ALL_SAMPLES, cause="class-never-predicted")
def without_background(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """With more than four classes, the last one is never predicted."""
    if name == "accuracy" and outputs.shape[1] > 4:
        outputs = np.concatenate([outputs[:, :-1], np.full((len(outputs), 1), -np.inf, np.float32)], axis=1)
    return right_score(comm, name, outputs, targets, indices)
