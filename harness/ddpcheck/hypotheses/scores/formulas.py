"""Wrong formulas from sums and counts to a score: each with the score that it predicts."""

from __future__ import annotations

import math

import numpy as np

from ...causes import scores as causes
from ...oracle.scores import TERMS, confusion, f1_of_classes, margins
from ...seeded_values import Array
from .samples import Named, SamplesByRank


def _of_accuracy(held: SamplesByRank) -> Named:
    outputs, labels = held.together(range(held.world))
    both, _, labelled = confusion(outputs, labels)
    yield (
        causes.CLASSES_WEIGH_EQUALLY(),
        float(np.mean(both[labelled > 0] / labelled[labelled > 0])),
    )
    if outputs.shape[1] == 2:
        for at in (0.0, 0.5):
            yield causes.SECOND_OUTPUT_THRESHOLDED(threshold=at), float(((outputs[:, 1] > at) == labels).mean())

    for place, what in ((-1, "last"), (0, "first")) if outputs.shape[1] > 1 else ():
        guesses = np.delete(outputs, place, axis=1).argmax(axis=1) + (place == 0)
        yield causes.CLASS_NEVER_PREDICTED(place=what), float((guesses == labels).mean())


def _of_f1(held: SamplesByRank) -> Named:
    outputs, labels = held.together(range(held.world))
    counts = confusion(outputs, labels)
    both, guessed, labelled = counts
    each = f1_of_classes(counts)
    occurs = ~np.isnan(each)
    yield (
        causes.UNLABELLED_CLASS_LEFT_OUT(),
        float(each[labelled > 0].mean()),
    )
    yield (
        causes.MICRO_AVERAGE(),
        float(both.sum() / labelled.sum()),
    )
    yield causes.ABSENT_CLASS_COUNTS(value=0), float(each[occurs].sum() / len(each))
    yield (
        causes.ABSENT_CLASS_COUNTS(value=1),
        float((each[occurs].sum() + (~occurs).sum()) / len(each)),
    )
    yield causes.CLASSES_WEIGHED_BY_SAMPLES(), float((each * labelled)[occurs].sum() / labelled.sum())
    if len(each) == 2 and occurs[1]:
        yield causes.BINARY_F1(), float(each[1])
    if (guessed > 0).any():
        yield causes.UNPREDICTED_CLASS_LEFT_OUT(), float(each[guessed > 0].mean())
    ranks = np.array([f1_of_classes(confusion(*part)) for part in held.parts if len(part[0])])
    everywhere = ~np.isnan(ranks).any(axis=0)
    if everywhere.any():
        yield causes.CLASS_MISSING_ON_RANK_LEFT_OUT(), float(each[everywhere].mean())
    known = ~np.isnan(ranks)
    means = np.where(known, ranks, 0).sum(axis=0)[occurs] / known.sum(axis=0)[occurs]
    yield causes.F1_MEAN_OF_RANKS(), float(means.mean())
    yield (
        causes.F1_MEAN_OF_RANKS_WITH_ZEROS(),
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
            causes.ONE_OUTPUT_COMPARED(label=place),
            float((signs + 1).mean() / 2),
        )
    yield causes.TIES_COUNT_NOTHING(), float((pairs > 0).mean())
    yield causes.TIES_COUNT_FULLY(), float((pairs >= 0).mean())
    yield causes.CLASSES_EXCHANGED(), float(((np.sign(-pairs) + 1) / 2).mean())
    within = [margins(*part) for part in held.parts]
    ranks_low, ranks_high = (
        np.repeat(np.arange(len(within)), [len(both[place]) for both in within]) for place in (0, 1)
    )
    for way in (1, -1):
        broken = np.where(pairs == 0, way * (ranks_high[:, None] - ranks_low), pairs)
        yield causes.TIES_GO_BY_RANK(), float((np.sign(broken) + 1).mean() / 2)
    likely = [[_likely(each, np.concatenate(both)) for each in both] for both in within]
    down, up = (np.concatenate(each) for each in zip(*likely, strict=True))
    yield (
        causes.PROBABILITIES_BY_RANK(),
        float((np.sign(up[:, None] - down) + 1).mean() / 2),
    )
    signs = [np.sign(up[:, None] - down).reshape(-1) for down, up in within if len(up) and len(down)]
    if signs:
        yield (
            causes.PAIRS_WITHIN_RANKS(),
            float((np.concatenate(signs) + 1).mean() / 2),
        )


def _likely(margin: Array, batch: Array) -> Array:
    """Probabilities, unless all margins of the batch could themselves be probabilities."""
    return margin if ((batch >= 0) & (batch <= 1)).all() else 1 / (1 + np.exp(-margin))


def _of_rmse(held: SamplesByRank) -> Named:
    outputs, targets = held.together(range(held.world))
    differences = outputs.astype(np.float64) - targets
    yield causes.ROOT_NOT_TAKEN(), float(np.square(differences).mean())
    yield causes.ABSOLUTE_DIFFERENCES(), float(np.abs(differences).mean())
    yield (
        causes.DIVIDED_BY_SAMPLES_ONLY(),
        math.sqrt(float(np.square(differences).sum() / len(outputs))),
    )
    if outputs.shape[1] > 1:
        yield causes.ROOT_OF_EACH_OUTPUT(), float(np.sqrt(np.square(differences).mean(axis=0)).mean())
    else:
        every = outputs.astype(np.float64) - targets[:, 0]
        yield (
            causes.OUTPUTS_BROADCAST(),
            float(np.sqrt(np.square(every).mean())),
        )


def _of_perplexity(held: SamplesByRank) -> Named:
    terms = TERMS["perplexity"](*held.together(range(held.world)))
    mean = float(terms.mean())
    yield causes.EXP_NOT_TAKEN(), mean
    yield causes.EXP_OF_EACH_SAMPLE(), float(np.exp(terms).mean())
    yield causes.BITS_FOR_NATS(), 2.0**mean


def of_formula(held: SamplesByRank) -> Named:
    """The score by a wrong formula."""
    yield from _FORMULAS[held.name](held)


_FORMULAS = {
    "accuracy": _of_accuracy,
    "f1_macro": _of_f1,
    "auc": _of_auc,
    "rmse": _of_rmse,
    "perplexity": _of_perplexity,
}
