"""Mistakes in what is made of sums and counts, score by score: each with the score that it gives."""

from __future__ import annotations

import math

import numpy as np

from ddpcheck.oracle.scores import TERMS, confusion, f1_of_classes, margins
from ddpcheck.values import Array

from .score_held import Named, SamplesByRank


def _of_accuracy(held: SamplesByRank) -> Named:
    outputs, labels = held.together(range(held.world))
    both, _, labelled = confusion(outputs, labels)
    yield (
        "every class weighs the same: it is the mean of the classes' accuracies",
        float(np.mean(both[labelled > 0] / labelled[labelled > 0])),
    )
    if outputs.shape[1] == 2:
        text = "of two classes a sample is taken for the second if its output is above 0, or 1/2, whatever the first one's is"
        yield from ((text, float(((outputs[:, 1] > at) == labels).mean())) for at in (0, 0.5))

    for place, what in ((-1, "last"), (0, "first")) if outputs.shape[1] > 1 else ():
        guesses = np.delete(outputs, place, axis=1).argmax(axis=1) + (place == 0)
        text = f"the {what} class is never the largest output: it is left out, as one that stands for none"
        yield text, float((guesses == labels).mean())


def _of_f1(held: SamplesByRank) -> Named:
    outputs, labels = held.together(range(held.world))
    counts = confusion(outputs, labels)
    both, guessed, labelled = counts
    each = f1_of_classes(counts)
    occurs = ~np.isnan(each)
    yield (
        "a class that is no sample's label is left out, though some are taken for it",
        float(each[labelled > 0].mean()),
    )
    yield (
        "all samples weigh the same, not all classes: it is the micro average, the accuracy",
        float(both.sum() / labelled.sum()),
    )
    yield "a class that does not occur anywhere counts with 0", float(each[occurs].sum() / len(each))
    yield (
        "a class that does not occur anywhere counts with 1",
        float((each[occurs].sum() + (~occurs).sum()) / len(each)),
    )
    yield "classes weigh by their numbers of samples", float((each * labelled)[occurs].sum() / labelled.sum())
    if len(each) == 2 and occurs[1]:
        yield "of two classes only the second counts: it is the F1 of two classes, and no mean", float(each[1])
    if (guessed > 0).any():
        yield "a class that no sample is taken for is left out", float(each[guessed > 0].mean())
    ranks = np.array([f1_of_classes(confusion(*part)) for part in held.parts if len(part[0])])
    everywhere = ~np.isnan(ranks).any(axis=0)
    if everywhere.any():
        yield "classes that some rank does not have are left out", float(each[everywhere].mean())
    known = ~np.isnan(ranks)
    means = np.where(known, ranks, 0).sum(axis=0)[occurs] / known.sum(axis=0)[occurs]
    yield "the F1 of a class is the mean of those on the ranks: counts of hits are what adds up", float(means.mean())
    yield (
        "the F1 of a class is the mean of those on the ranks, 0 where a rank does not have it",
        float(np.where(known, ranks, 0).mean(axis=0)[occurs].mean()),
    )


def _of_auc(held: SamplesByRank) -> Named:
    low, high = margins(*held.together(range(held.world)))
    pairs = high[:, None] - low
    outputs, labels = held.together(range(held.world))
    for place in (1, 0):
        alone = outputs[:, place] * (1 if place else -1)
        signs = np.sign(alone[labels == 1][:, None] - alone[labels == 0])
        yield (
            f"only the outputs of class {place} are compared, and not how far the two are apart",
            float((signs + 1).mean() / 2),
        )
    yield "equal outputs count nothing, but should count half", float((pairs > 0).mean())
    yield "equal outputs count as in order, but should count half", float((pairs >= 0).mean())
    yield "the classes are exchanged", float(((np.sign(-pairs) + 1) / 2).mean())
    within = [margins(*part) for part in held.parts]
    likely = [[_likely(each, np.concatenate(both)) for each in both] for both in within]
    down, up = (np.concatenate(each) for each in zip(*likely, strict=True))
    yield (
        "margins are made probabilities on some ranks, and are taken for such on others: what they are is not a matter of a "
        "rank's own batch",
        float((np.sign(up[:, None] - down) + 1).mean() / 2),
    )
    signs = [np.sign(up[:, None] - down).reshape(-1) for down, up in within if len(up) and len(down)]
    if signs:
        yield (
            "samples of different ranks are not compared: it is that of pairs within the ranks",
            float((np.concatenate(signs) + 1).mean() / 2),
        )


def _likely(margin: Array, batch: Array) -> Array:
    """Probabilities, unless all margins of the batch could be some."""
    return margin if ((batch >= 0) & (batch <= 1)).all() else 1 / (1 + np.exp(-margin))


def _of_rmse(held: SamplesByRank) -> Named:
    outputs, targets = held.together(range(held.world))
    differences = outputs.astype(np.float64) - targets
    yield "the root is not taken: it is the mean square", float(np.square(differences).mean())
    yield "it is the mean of absolute differences", float(np.abs(differences).mean())
    yield (
        "it is divided by the number of samples, where each has several outputs",
        math.sqrt(float(np.square(differences).sum() / len(outputs))),
    )
    if outputs.shape[1] > 1:
        text = "the root is taken of the mean square of each output, and it is the mean of these roots"
        yield text, float(np.sqrt(np.square(differences).mean(axis=0)).mean())
    else:
        every = outputs.astype(np.float64) - targets[:, 0]
        yield (
            "each output is compared with all targets, as a column less a row is a table",
            float(np.sqrt(np.square(every).mean())),
        )


def _of_perplexity(held: SamplesByRank) -> Named:
    terms = TERMS["perplexity"](*held.together(range(held.world)))
    mean = float(terms.mean())
    yield "exp is not taken: it is the mean cross entropy", mean
    yield "exp is taken of each sample's cross entropy, and then the mean", float(np.exp(terms).mean())
    yield "2 is raised to natural logarithms: bits and nats are mixed", 2.0**mean


OF_SCORES = {
    "accuracy": _of_accuracy,
    "f1_macro": _of_f1,
    "auc": _of_auc,
    "rmse": _of_rmse,
    "perplexity": _of_perplexity,
}
