"""Scores that average the ranks' scores, or that lose or repeat samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ...data_parallel.scores import compute_score
from ..facet_seams import scores

ALL_SAMPLES = "check_scores_match_one_process"
NOTHING = "check_scores_ignore_ranks_without_samples"
NO_NUMBER = "check_scores_without_samples_are_nan"
EQUAL = "check_scores_are_bitwise_equal_on_all_ranks"
TWICE = "check_duplicate_samples_count_once_in_scores"
PADDING = "check_scores_ignore_padding"


class Alone:
    """The collectives of a world of one rank."""

    def all_reduce(self, array: Array) -> Array:
        return array

    def all_gather(self, array: Array) -> Array:
        return array[None]


_ALONE: Any = Alone()


def on_one(name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """The right score of these rows, on one process."""
    return compute_score(_ALONE, 0, name, outputs, targets, indices)


def of_all_rows(name: str, outputs: Array, targets: Array) -> float:
    """The score of these rows; each row is a separate sample."""
    return on_one(name, outputs, targets, np.arange(len(outputs)))


def from_ranks(comm: Any, array: Array) -> list[Array]:
    """Every rank's rows, in the order of ranks."""
    sizes = comm.all_gather(np.array(len(array), np.int64)).tolist()
    padded = np.zeros((max(sizes), *array.shape[1:]), array.dtype)
    padded[: len(array)] = array
    return [part[:size] for part, size in zip(comm.all_gather(padded), sizes, strict=True)]


def together(comm: Any, *arrays: Array) -> tuple[Array, ...]:
    """The rows of all ranks, for each array."""
    return tuple(np.concatenate(from_ranks(comm, array)) for array in arrays)


def right_score(comm: Any, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Gather all samples on every rank, and score them as on one process."""
    return on_one(name, *together(comm, outputs, targets, indices))


def of_each(comm: Any, name: str, outputs: Array, targets: Array, indices: Array) -> list[tuple[float, float]]:
    """Score and sample count of each rank that has samples."""
    own = np.array([on_one(name, outputs, targets, indices), np.sum(indices >= 0)])
    return [(score, size) for score, size in comm.all_gather(own).tolist() if size]


def squares(outputs: Array, targets: Array) -> Array:
    return np.square(outputs.astype(np.float64) - targets)


@scores("mean-of-the-ranks-scores", ALL_SAMPLES, seen_in=("NVIDIA/apex#831",), cause="mean-of-rank-scores")
def mean_of_scores(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Each rank scores its own samples, and the scores are averaged."""
    found = of_each(comm, name, outputs, targets, indices)
    return math.fsum(score for score, _ in found) / len(found) if found else math.nan


@scores(
    "scores-weighted-like-means",
    ALL_SAMPLES,
    seen_in=("MeryylleA/lunariscodex#77",),
    cause="weighted-mean-of-rank-scores",
)
def weighted_scores(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """The ranks' scores are averaged with sample counts as weights, which is right for accuracy only."""
    found = of_each(comm, name, outputs, targets, indices)
    return (
        math.fsum(score * size for score, size in found) / math.fsum(size for _, size in found) if found else math.nan
    )


@scores("score-on-rank-0-only", ALL_SAMPLES, EQUAL, cause="score-not-combined")
def on_rank_0_only(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Rank 0 scores all samples; the other ranks score their own."""
    found = right_score(comm, name, outputs, targets, indices)
    return found if rank == 0 else on_one(name, outputs, targets, indices)


@scores("loss-averaged-before-exp", ALL_SAMPLES, cause="score-means-unweighted", score_names=frozenset({"perplexity"}))
def averaged_before_exp(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Perplexity is exp of the unweighted mean of the ranks' mean losses."""
    losses = [math.log(score) for score, _ in of_each(comm, name, outputs, targets, indices)]
    return math.exp(math.fsum(losses) / len(losses)) if losses else math.nan


@scores("rmse-without-its-root", ALL_SAMPLES, cause="root-not-taken", score_names=frozenset({"rmse"}))
def without_root(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """RMSE is the mean square, without the root."""
    return right_score(comm, name, outputs, targets, indices) ** 2


@scores("score-of-all-calls-so-far", ALL_SAMPLES, cause="score-accumulates-calls")
def kept(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Samples of earlier calls of the same score are scored again."""
    found = together(comm, outputs, targets, indices)
    rows = vars(comm).setdefault("rows", {}).setdefault((name, outputs.shape[1]), [])
    rows.append(found[:2])
    return of_all_rows(name, *(np.concatenate(parts) for parts in zip(*rows, strict=True)))


@scores("score-cached-by-sample-count", ALL_SAMPLES, cause="score-of-earlier-call")
def told_again(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """A call with as many samples as the previous one returns the previous score."""
    found = right_score(comm, name, outputs, targets, indices)
    size = sum(map(len, from_ranks(comm, indices)))
    known: dict[tuple[str, int], float] = vars(comm).setdefault("known", {})
    return known.setdefault((name, size), found)


@scores("empty-rank-makes-score-nan", NOTHING, cause="nan-of-empty-rank")
def nan_of_empty_rank(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """A rank without samples makes the score NaN."""
    empty = any(not len(part) for part in from_ranks(comm, indices))
    return math.nan if empty else right_score(comm, name, outputs, targets, indices)


@scores("score-0-of-no-samples", NO_NUMBER, cause="number-without-samples")
def zero_of_nothing(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Without samples on any rank, the score is 0."""
    found = right_score(comm, name, outputs, targets, indices)
    return 0.0 if not any(len(part) for part in from_ranks(comm, indices)) else found


@scores("rmse-counted-in-half-precision", ALL_SAMPLES, cause="count-in-half-precision", score_names=frozenset({"rmse"}))
def counted_in_half(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Counts are sent as float16, which rounds those from 2,049 on."""
    terms = squares(*together(comm, outputs, targets))
    return math.sqrt(terms.sum() / float(np.float16(terms.size))) if terms.size else math.nan


@scores(
    "outputs-gathered-in-half-precision",
    ALL_SAMPLES,
    cause="outputs-rounded",
    score_names=frozenset({"perplexity", "rmse"}),
)
def gathered_in_half(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Outputs are sent as float16."""
    return right_score(comm, name, outputs.astype(np.float16).astype(np.float32), targets, indices)


@scores(
    "score-added-in-own-order",
    EQUAL,
    cause="ranks-add-in-other-order",
    world_size=3,
    score_names=frozenset({"perplexity"}),
)
def added_in_own_order(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Each rank starts the sum with its own losses, so the last bits differ between ranks."""
    loss = math.log(on_one(name, outputs, targets, indices)) * len(outputs) if len(outputs) else 0.0
    total = count = 0.0
    for part, size in np.roll(comm.all_gather(np.array([loss, len(outputs)])), -rank, axis=0).tolist():
        total, count = total + part, count + size
    return math.exp(total / count) if count else math.nan


@scores("one-output-rounded-on-rank-1", EQUAL, cause="ranks-add-in-other-order", score_names=frozenset({"rmse"}))
def one_output_alone(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """With one output, rank 1 rounds the root differently."""
    found = right_score(comm, name, outputs, targets, indices)
    return float(np.nextafter(found, np.inf)) if rank == 1 and outputs.shape[1] == 1 else found


@scores(
    "sampler-s-padding-counts-twice",
    TWICE,
    seen_in=("huggingface/accelerate#540",),
    cause="duplicates-counted",
    scores_count_once=True,
)
def padding_twice(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Samples that the sampler repeats count twice; only marked padding is left out."""
    outputs, targets, indices = together(comm, outputs, targets, indices)
    return of_all_rows(name, outputs[indices >= 0], targets[indices >= 0])


@scores("counted-once-on-each-rank", TWICE, cause="duplicates-between-ranks-counted", scores_count_once=True)
def once_on_each(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Duplicates are removed on each rank only, not across ranks."""
    _, places = np.unique(indices, return_index=True)
    own = np.sort(places[indices[places] >= 0])
    return of_all_rows(name, *together(comm, outputs[own], targets[own]))


@scores("indices-gathered-in-float32", TWICE, cause="indices-confused", scores_count_once=True)
def indices_in_float32(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Sample indices are sent as float32, so some are equal from 2^24 on."""
    sent = np.concatenate([outputs, indices[:, None].astype(np.float32)], axis=1)
    rows, targets = together(comm, sent, targets)
    return on_one(name, rows[:, :-1], targets, rows[:, -1].astype(np.int64))


@scores("samples-that-come-twice-are-dropped", TWICE, cause="duplicates-left-out", scores_count_once=True)
def dropped(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Both copies of a duplicate sample are left out."""
    outputs, targets, indices = together(comm, outputs, targets, indices)
    samples, counts = np.unique(indices, return_counts=True)
    once = np.isin(indices, samples[(counts == 1) & (samples >= 0)])
    return of_all_rows(name, outputs[once], targets[once])


@scores(
    "rows-of-padding-are-scored",
    PADDING,
    cause="padding-counted",
    scores_skip_padding=True,
)
def padding_scored(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Padding rows are scored as samples."""
    outputs, targets, indices = together(comm, outputs, targets, indices)
    own = np.where(indices < 0, 1000 + np.arange(len(indices)), indices)
    return on_one(name, outputs, targets, own)


@scores("padding-cut-off-the-end", PADDING, cause="padding-cut-at-end", scores_skip_padding=True)
def padding_cut_off(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Rows are cut off at the end, as many as there are padding rows, wherever the padding is."""
    size = int((indices >= 0).sum())
    cut = np.where(indices < 0, 1000 + rank * 100 + np.arange(len(indices)), indices)[:size]
    return right_score(comm, name, outputs[:size], targets[:size], cut)
