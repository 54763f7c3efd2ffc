"""Scores over the samples of all ranks: counts and sums are summed over ranks, and the score is computed once from them.

Most scores are not the mean of the ranks' scores: a root, an exponential or a quotient must be computed after the sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ddpcheck.contract.adapter import Collectives
from ddpcheck.seeded_values import Array


def compute_score(
    collectives: Collectives, rank: int, name: str, outputs: Array, targets: Array, indices: Array
) -> float:
    """The score `name` of the samples of all ranks. Each sample counts once, index -1 not at all. NaN without samples.

    A sample of several ranks counts on the lowest of them. Sums are float64, and all ranks get the same score.
    """
    if name not in _SCORES:
        raise ValueError(f"there is no score {name!r} here; choose one of {', '.join(sorted(_SCORES))}")
    own = _first_places(collectives, rank, indices)
    return _SCORES[name](collectives, outputs[own].astype(np.float64), targets[own])


def _first_places(collectives: Collectives, rank: int, indices: Array) -> Array:
    """Positions of this rank's samples, without those that occur earlier on this rank or on a lower rank."""
    everyone = _from_ranks(collectives, indices)
    samples = np.concatenate(everyone)
    first = np.zeros(len(samples), bool)
    first[np.unique(samples, return_index=True)[1]] = True
    begin = sum(map(len, everyone[:rank]))
    return np.flatnonzero((first & (samples >= 0))[begin : begin + len(indices)])


def _from_ranks(collectives: Collectives, array: Array) -> list[Array]:
    """Every rank's one-dimensional array; lengths may differ."""
    lengths = collectives.all_gather(np.array(len(array), np.int64)).tolist()
    padded = np.zeros(max(lengths), array.dtype)
    padded[: len(array)] = array
    return [row[:length] for row, length in zip(collectives.all_gather(padded), lengths, strict=True)]


def _mean(collectives: Collectives, terms: Array) -> float:
    """The mean of the terms of all ranks."""
    total, count = collectives.all_reduce(np.array([terms.sum(), terms.size], np.float64)).tolist()
    return total / count if count else math.nan


def _accuracy(collectives: Collectives, outputs: Array, labels: Array) -> float:
    return _mean(collectives, outputs.argmax(axis=1) == labels)


def _perplexity(collectives: Collectives, outputs: Array, labels: Array) -> float:
    shifted = outputs - outputs.max(axis=1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(shifted)), labels]
    return float(np.exp(_mean(collectives, losses)))


def _rmse(collectives: Collectives, outputs: Array, targets: Array) -> float:
    return math.sqrt(_mean(collectives, np.square(outputs - targets)))


def _f1_macro(collectives: Collectives, outputs: Array, labels: Array) -> float:
    classes, guesses = outputs.shape[1], outputs.argmax(axis=1)
    counts = [np.bincount(of, minlength=classes) for of in (labels[guesses == labels], guesses, labels)]
    hits, guessed, labelled = collectives.all_reduce(np.array(counts, np.float64))
    occurring = guessed + labelled > 0
    if not occurring.any():
        return math.nan
    return float(np.mean(2 * hits[occurring] / (guessed + labelled)[occurring]))


def _auc(collectives: Collectives, outputs: Array, labels: Array) -> float:
    """Count pairs over all ranks, which needs all samples. Equal outputs count one half."""
    margins = np.concatenate(_from_ranks(collectives, outputs[:, 1] - outputs[:, 0]))
    positive = np.concatenate(_from_ranks(collectives, np.asarray(labels, np.int64))) == 1
    pairs = int(positive.sum()) * int((~positive).sum())
    if not pairs:
        return math.nan
    negatives = np.sort(margins[~positive])
    below, up_to = (np.searchsorted(negatives, margins[positive], side) for side in ("left", "right"))
    return float((below + up_to).sum() / 2 / pairs)


_SCORES: dict[str, Callable[[Collectives, Array, Array], float]] = {
    "accuracy": _accuracy,
    "auc": _auc,
    "f1_macro": _f1_macro,
    "perplexity": _perplexity,
    "rmse": _rmse,
}
