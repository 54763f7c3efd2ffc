"""Scores that are correct but computed in an unusual way."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..facet_seams import scores
from .scores import from_ranks, right_score

FINISH: dict[str, Callable[[Array], Array]] = {"rmse": np.sqrt, "accuracy": np.asarray, "perplexity": np.exp}
"""The function that turns the mean of the terms into the score."""


@scores("score-of-everything-gathered", scores_count_once=True, scores_skip_padding=True)
def gathered(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Correct: every rank gathers all rows and scores them itself."""
    return right_score(comm, name, outputs, targets, indices)


@scores("score-made-on-the-last-rank", scores_count_once=True, scores_skip_padding=True)
def on_last_rank(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Correct: the last rank computes the score and sends it in float32."""
    found = right_score(comm, name, outputs, targets, indices)
    return float(
        comm.broadcast(np.array(found if rank == comm.world_size - 1 else -1, np.float32), comm.world_size - 1)
    )


@scores("score-from-single-precision", score_names=frozenset({"accuracy", "perplexity", "rmse"}))
def in_single_precision(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Correct where duplicates are not promised: terms, running means and shares are float32."""
    if name == "rmse":
        terms = np.square(outputs - targets).reshape(-1)
    elif name == "accuracy":
        terms = (outputs.argmax(axis=1) == targets).astype(np.float32)
    else:
        shifted = outputs - outputs.max(axis=1, keepdims=True)
        terms = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(outputs)), targets]
    mean = np.float32(0)
    for number, term in enumerate(terms, start=1):
        mean += (term - mean) / np.float32(number)
    counts = comm.all_gather(np.array(terms.size, np.float32))
    if not counts.any():
        return math.nan
    share = np.float32(terms.size) / counts.sum()
    whole = comm.all_reduce(np.array(mean * share, np.float32))
    return float(FINISH[name](whole))


@scores("f1-from-precision-and-recall", score_names=frozenset({"f1_macro"}))
def from_precision_and_recall(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Correct: F1 is the harmonic mean of precision and recall, or 0 without hits, in float32."""
    found = []
    guesses = outputs.argmax(axis=1)
    for each in range(outputs.shape[1]):
        hit, guessed, labelled = (guesses == each) & (targets == each), guesses == each, targets == each
        sums = comm.all_reduce(np.array([hit.sum(), guessed.sum(), labelled.sum()], np.float32))
        if sums[1] + sums[2]:
            precision, recall = (sums[0] / total if total else np.float32(0) for total in sums[1:])
            found.append(2 * precision * recall / (precision + recall) if sums[0] else np.float32(0))
    return float(np.mean(found, dtype=np.float32)) if found else math.nan


@scores("auc-from-the-curve", score_names=frozenset({"auc"}))
def from_the_curve(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Correct: AUC is a sum of trapezoids over every threshold that occurs."""
    margins = outputs[:, 1] - outputs[:, 0]
    thresholds = np.unique(np.concatenate(from_ranks(comm, margins)))
    above = [[np.sum(margins[targets == label] >= each) for each in thresholds[::-1]] for label in (0, 1)]
    counts = comm.all_reduce(np.array(above, np.float32).reshape(2, -1))
    totals = counts[:, -1:]
    if not totals.all() or not totals.size:
        return math.nan
    curve = np.concatenate([np.zeros((2, 1), np.float32), counts / totals], axis=1)
    return float(np.sum(np.diff(curve[0]) * (curve[1, 1:] + curve[1, :-1]) / 2))
