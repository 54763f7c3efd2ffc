"""Scores as one process with all samples computes them, in float64, with bounds on rounding.

Most scores are a function of a mean of terms that are not negative. Its roundings: a sum of n terms, its division, four
on each rank if shares are weighted, and those within a term. The mean is off by at most gamma_m of itself, in float32,
with m = n + 8 W + 32, plus the number of classes where classes are summed too.

Counts are exact in float32 below 2^24. A root halves the relative error; exp turns an absolute error into a relative
one. Shares are at most 1. They may be computed as 1 minus another share, and areas as differences of neighbours: their
error is relative to 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ..numerics import gamma
from ..seeded_values import Array


def counted(indices: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """The samples of these ranks, each once, without padding."""
    return tuple(dict.fromkeys(index for rank in indices for index in rank if index >= 0))


def hits(outputs: Array, labels: Array) -> Array:
    """1 if the largest output is the label's, else 0."""
    return np.asarray(outputs.argmax(axis=1) == labels, np.float64)


def squares(outputs: Array, targets: Array) -> Array:
    """Squared differences, one for each number."""
    return np.square(outputs.astype(np.float64) - targets).reshape(-1)


def cross_entropies(outputs: Array, labels: Array) -> Array:
    """-log softmax(outputs)[label], one for each sample."""
    wide = outputs.astype(np.float64)
    largest = wide.max(axis=1, keepdims=True)
    return np.asarray(np.log(np.exp(wide - largest).sum(axis=1)) + largest[:, 0] - wide[np.arange(len(wide)), labels])


TERMS: dict[str, Callable[[Array, Array], Array]] = {
    "accuracy": hits,
    "rmse": squares,
    "perplexity": cross_entropies,
}
FINISH: dict[str, Callable[[float], float]] = {"accuracy": float, "rmse": math.sqrt, "perplexity": math.exp}
"""The function that turns the mean of terms into the score."""


def confusion(outputs: Array, labels: Array) -> Array:
    """Counts per class, (3, classes): samples with it as label and prediction, as prediction, as label."""
    classes = outputs.shape[1]
    guesses = outputs.argmax(axis=1)
    counted = [np.bincount(of, minlength=classes) for of in (labels[guesses == labels], guesses, labels)]
    return np.array(counted, np.float64)


def f1_of_classes(counts: Array) -> Array:
    """F1 of each class; NaN for a class that does not occur."""
    both, guessed, labelled = counts
    with np.errstate(invalid="ignore"):
        return np.asarray(2 * both / (guessed + labelled))


def margins(outputs: Array, labels: Array) -> tuple[Array, Array]:
    """The preference for class 1 over class 0: for samples of class 0, and for samples of class 1."""
    margin = outputs[:, 1].astype(np.float64) - outputs[:, 0]
    return margin[labels == 0], margin[labels == 1]


def score_of(name: str, outputs: Array, targets: Array) -> float:
    """The score of these samples; NaN if there are none."""
    if not len(outputs):
        return math.nan
    if name == "f1_macro":
        found = f1_of_classes(confusion(outputs, targets))
        return math.fsum(found[~np.isnan(found)]) / int((~np.isnan(found)).sum())
    if name == "auc":
        low, high = margins(outputs, targets)
        pairs = np.sign(high[:, None] - low)
        return float((pairs + 1).sum() / 2 / pairs.size) if pairs.size else math.nan
    terms = TERMS[name](outputs, targets)
    return FINISH[name](math.fsum(terms) / len(terms))


def allowed(name: str, outputs: Array, targets: Array, world_size: int) -> float:
    """The rounding bound of a score that is computed in float32."""
    size, classes = outputs.shape
    count = {"rmse": size * classes, "auc": 4 * size, "accuracy": size}.get(name, size + classes)
    relative = gamma(count + 8 * world_size + 32, "float32")
    if name not in ("rmse", "perplexity"):
        return relative
    exact = score_of(name, outputs, targets)
    if name == "rmse":
        return relative / 2 * exact
    # the logarithm, and the difference from the largest output, have errors relative to the size of the outputs
    reach = 2 * float(np.abs(outputs).max(initial=0)) + math.log(classes) + 1
    return exact * math.expm1(relative * (math.log(exact) + reach)) + relative * exact
