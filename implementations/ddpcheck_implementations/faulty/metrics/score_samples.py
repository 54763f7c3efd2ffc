"""Scores that lose samples by their index, label, position or number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..facet_seams import scores
from .score_classes import AUC, PAIRS
from .scores import ALL_SAMPLES, EQUAL, TWICE, from_ranks, right_score

NAN = "check_perplexity_with_a_nan_sample_is_nan"
PERPLEXITY, RMSE = frozenset({"perplexity"}), frozenset({"rmse"})
ONCE: dict[str, Any] = {"scores_count_once": True, "scores_skip_padding": True}


@scores("score-of-indices-in-32-bits", TWICE, cause="indices-confused", **ONCE)
def indices_in_32_bits(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Sample indices are sent as 32-bit integers."""
    return right_score(comm, name, outputs, targets, indices.astype(np.int32))


@scores("score-of-indices-in-double-precision", TWICE, cause="indices-confused", **ONCE)
def indices_as_floats(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Sample indices are sent as float64, which rounds large ones."""
    return right_score(comm, name, outputs, targets, indices.astype(np.float64))


@scores("score-leaves-out-sample-0", ALL_SAMPLES, cause="sample-0-left-out", **ONCE)
def without_sample_0(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Sample 0 counts as padding."""
    return right_score(comm, name, outputs, targets, np.where(indices > 0, indices, -1))


@scores("score-leaves-out-label-0", ALL_SAMPLES, cause="label-left-out")
def without_label_0(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Samples with label 0 count as padding."""
    kept = targets != 0 if name == "perplexity" else np.ones(len(targets), bool)
    return right_score(comm, name, outputs[kept], targets[kept], indices[kept])


@scores("score-of-the-first-thousand", ALL_SAMPLES, cause="samples-limited")
def first_thousand(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Only the first thousand samples of each rank are scored."""
    return right_score(comm, name, outputs[:1000], targets[:1000], indices[:1000])


@scores("score-of-as-many-as-the-shortest", ALL_SAMPLES, cause="fewest-samples-count")
def as_the_shortest(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Every rank's rows are cut to the shortest rank's number of rows."""
    least = int(comm.all_reduce(np.array(len(indices) or 1 << 30, np.int64), "min"))
    return right_score(comm, name, outputs[:least], targets[:least], indices[:least])


@scores(
    "auc-of-probabilities-where-needed",
    PAIRS,
    seen_in=("Lightning-AI/torchmetrics#2195",),
    cause="probabilities-by-rank",
    score_names=AUC,
)
def auc_of_probabilities_where_needed(
    comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array
) -> float:
    """Each rank decides by its own margins whether to convert them to probabilities."""
    margins = outputs[:, 1].astype(np.float64) - outputs[:, 0]
    if ((margins < 0) | (margins > 1)).any():
        margins = 1 / (1 + np.exp(-margins))
    return right_score(comm, name, np.stack([np.zeros_like(margins), margins], axis=1), targets, indices)


@scores("perplexity-without-nan-where-classes-are-many", NAN, cause="nan-of-sample-lost", score_names=PERPLEXITY)
def without_nan_of_many(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """With many classes, perplexity skips samples with NaN."""
    kept = ~np.isnan(outputs).any(axis=1) if outputs.shape[1] > 4 else np.ones(len(outputs), bool)
    return right_score(comm, name, outputs[kept], targets[kept], indices[kept])


@scores("score-of-far-indices-shortened", TWICE, cause="fewest-samples-count", **ONCE)
def far_indices_shortened(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """With large indices, every rank's rows are cut to the shortest rank's number of rows."""
    far = int(comm.all_reduce(np.array(indices.max(initial=0), np.int64), "max")) > 1 << 20
    least = int(comm.all_reduce(np.array(len(indices) or 1 << 30, np.int64), "min"))
    kept = slice(least) if far else slice(None)
    return right_score(comm, name, outputs[kept], targets[kept], indices[kept])


@scores("rmse-from-own-samples-on-where-unsorted", EQUAL, cause="ranks-add-in-other-order", score_names=RMSE)
def own_samples_first(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """If samples are unsorted, each rank starts its sum with its own, so last bits differ between ranks."""
    held = from_ranks(comm, indices)
    if not sum(map(len, held)) or (np.diff(np.concatenate(held)) >= 0).all():
        return right_score(comm, name, outputs, targets, indices)
    squares = from_ranks(comm, np.square(outputs.astype(np.float64) - targets).sum(axis=1))
    total = 0.0
    for part in squares[rank:] + squares[:rank]:
        for square in part.tolist():
            total += square
    return math.sqrt(total / sum(map(len, held)) / outputs.shape[1])
