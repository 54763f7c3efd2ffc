"""Scores that are wrong for classes missing on some ranks or for NaN, or that keep samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..facet_seams import scores
from .scores import ALL_SAMPLES, from_ranks, of_all_rows, on_one, right_score, squares, together

CLASSES = "check_macro_f1_averages_classes_seen_on_any_rank"
PAIRS = "check_auc_compares_samples_across_ranks"
RMSE_NONE = "check_rmse_with_a_nan_sample_is_nan"
PERPLEXITY_NONE = "check_perplexity_with_a_nan_sample_is_nan"
USED = "check_scores_leave_process_state_unchanged"
F1 = frozenset({"f1_macro"})
AUC = frozenset({"auc"})


def counts_of(outputs: Array, labels: Array) -> Array:
    """Counts of hits, predictions and labels of each class: (3, classes)."""
    guesses, classes = outputs.argmax(axis=1), outputs.shape[1]
    return np.array(
        [np.bincount(of, minlength=classes) for of in (labels[guesses == labels], guesses, labels)], np.float64
    )


def f1_of_each(counts: Array) -> Array:
    """F1 of each class; NaN for a class that does not occur."""
    with np.errstate(invalid="ignore"):
        return np.asarray(2 * counts[0] / (counts[1] + counts[2]))


@scores("f1-micro-for-macro", ALL_SAMPLES, CLASSES, cause="micro-average", score_names=F1)
def micro(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """F1 is computed over all classes together, which gives the accuracy."""
    return right_score(comm, "accuracy", outputs, targets, indices)


@scores("f1-of-an-absent-class-is-0", CLASSES, cause="absent-class-counts", score_names=F1)
def absent_counts_0(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Classes that occur nowhere count as F1 of 0."""
    counts = comm.all_reduce(counts_of(outputs, targets))
    return float(np.nan_to_num(f1_of_each(counts)).mean()) if counts.any() else math.nan


@scores("f1-of-labelled-classes-only", CLASSES, cause="unlabelled-class-left-out", score_names=F1)
def labelled_only(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Classes that are only predicted are left out of macro F1."""
    counts = comm.all_reduce(counts_of(outputs, targets))
    return float(f1_of_each(counts)[counts[2] > 0].mean()) if counts.any() else math.nan


@scores("f1-of-each-rank-averaged-by-class", ALL_SAMPLES, cause="f1-mean-of-ranks", score_names=F1)
def averaged_by_class(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Each class's F1 is the mean of the ranks' F1."""
    each = comm.all_gather(f1_of_each(counts_of(outputs, targets)))
    known = ~np.isnan(each)
    somewhere = known.any(axis=0)
    return (
        float((np.nan_to_num(each).sum(axis=0) / known.sum(axis=0).clip(1))[somewhere].mean())
        if known.any()
        else math.nan
    )


@scores("labels-in-a-byte", ALL_SAMPLES, cause="labels-wrap", score_names=frozenset({"accuracy", "f1_macro"}))
def labels_in_a_byte(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Labels are sent as uint8."""
    return right_score(comm, name, outputs, targets.astype(np.uint8).astype(np.int64), indices)


@scores(
    "auc-of-pairs-within-ranks",
    ALL_SAMPLES,
    PAIRS,
    cause="pairs-within-ranks",
    score_names=AUC,
)
def within_ranks(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """AUC counts only pairs of samples on the same rank."""
    pairs = float((targets == 0).sum() * (targets == 1).sum())
    ordered = on_one(name, outputs, targets, indices) * pairs if pairs else 0.0
    ordered, pairs = comm.all_reduce(np.array([ordered, pairs])).tolist()
    return ordered / pairs if pairs else math.nan


@scores("auc-nan-of-a-rank-with-one-class", PAIRS, cause="nan-of-one-class", score_names=AUC)
def nan_of_one_class(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """AUC is NaN on all ranks if one rank has samples of one class only."""
    alone = any(len(set(part.tolist())) == 1 for part in from_ranks(comm, targets))
    return math.nan if alone else right_score(comm, name, outputs, targets, indices)


@scores("auc-of-equal-outputs", ALL_SAMPLES, cause="ties-count-nothing", score_names=AUC)
def ties_count_nothing(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """In AUC, pairs of equal outputs count as 0 instead of one half."""
    outputs, targets = together(comm, outputs, targets)
    margins = outputs[:, 1] - outputs[:, 0]
    pairs = margins[targets == 1][:, None] > margins[targets == 0]
    return float(pairs.mean()) if pairs.size else math.nan


@scores("rmse-leaves-out-nan", RMSE_NONE, cause="nan-of-sample-lost", score_names=frozenset({"rmse"}))
def nan_left_out(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """RMSE skips NaN."""
    terms = squares(*together(comm, outputs, targets))
    return math.sqrt(float(np.nanmean(terms))) if terms.size else math.nan


@scores("perplexity-leaves-out-nan", PERPLEXITY_NONE, cause="nan-of-sample-lost", score_names=frozenset({"perplexity"}))
def nan_sample_left_out(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Perplexity skips samples with NaN."""
    outputs, targets = together(comm, outputs, targets)
    there = ~np.isnan(outputs).any(axis=1)
    return of_all_rows(name, outputs[there], targets[there])


@scores("scored-samples-stay", USED, cause="memory-grows")
def stays(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """The outputs of every call are kept forever."""
    vars(comm).setdefault("kept", []).append(outputs.tolist())
    return right_score(comm, name, outputs, targets, indices)


@scores("auc-of-a-hundred-thresholds", ALL_SAMPLES, cause="outputs-taken-for-equal", score_names=AUC)
def auc_of_bins(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """AUC is computed from a hundred bins, which loses the order within a bin."""
    binned = np.zeros_like(outputs)
    binned[:, 1] = np.round(np.tanh((outputs[:, 1] - outputs[:, 0]) / 4) * 50)
    return right_score(comm, name, binned, targets, indices)


PERPLEXITY = frozenset({"perplexity"})
FAR = "check_perplexity_of_large_losses_is_not_clamped"


@scores("perplexity-cut-off", FAR, cause="loss-cut-off", score_names=PERPLEXITY)
def cut_off(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Perplexity is limited to exp(20)."""
    return float(np.minimum(right_score(comm, name, outputs, targets, indices), np.exp(20.0)))
