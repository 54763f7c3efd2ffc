"""Scores of the right samples by a wrong formula."""

from __future__ import annotations

import math

import numpy as np

from ddpcheck.oracle.scores import FINISH, confusion, f1_of_classes, margins, squares
from ddpcheck.seeded_values import Array

from ..engine.fault import Fault, table
from ..engine.scores import Samples, ScoreEffect, has_no_pair, has_score, idle_rank, scored
from .score_classes import AUC, CLASSES, F1, FAR, PAIRS
from .scores import ALL_SAMPLES, NOTHING

RMSE, PERPLEXITY, ACCURACY = (frozenset({name}) for name in ("rmse", "perplexity", "accuracy"))

# -------------------------------------------------------------------------------------------- formulas of each score


@scored
def mean_absolute_difference(held: Samples) -> float:
    outputs, targets = held.together()
    return float(np.abs(outputs.astype(np.float64) - targets).mean())


@scored
def root_of_squares_by_samples(held: Samples) -> float:
    return math.sqrt(squares(*held.together()).sum() / len(held.together()[0]))


@scored
def root_in_half_precision(held: Samples) -> float:
    return float(np.float16(held.right))


@scored
def plain_exponentials(held: Samples) -> float:
    outputs, labels = held.together()
    wide = outputs.astype(np.float64)
    with np.errstate(all="ignore"):
        logarithms = np.log(np.exp(wide).sum(axis=1))
        return float(np.exp(np.mean(logarithms - wide[np.arange(len(wide)), labels])))


@scored
def ties_by_rank(held: Samples) -> float:
    """The higher rank's sample counts as the larger one."""
    within = [margins(*part) for part in held.parts]
    low, high = (np.concatenate([both[place] for both in within]) for place in (0, 1))
    of_low, of_high = (np.repeat(np.arange(len(within)), [len(both[place]) for both in within]) for place in (0, 1))
    larger = high[:, None] - low
    return float((np.sign(np.where(larger == 0, of_high[:, None] - of_low, larger)) + 1).mean() / 2)


@scored
def cross_entropy(held: Samples) -> float:
    return math.log(held.right)


@scored
def two_to_the_cross_entropy(held: Samples) -> float:
    return float(2.0 ** math.log(held.right))


@scored
def mean_of_exponentials(held: Samples) -> float:
    return float(np.exp(np.concatenate(held.terms())).mean())


@scored
def mean_of_class_accuracies(held: Samples) -> float:
    hits, _, labelled = confusion(*held.together())
    return float((hits[labelled > 0] / labelled[labelled > 0]).mean())


@scored
def share_of_errors(held: Samples) -> float:
    return 1 - held.right


@scored
def half_without_pairs(held: Samples) -> float:
    return 0.5


@scored
def ties_in_order(held: Samples) -> float:
    low, high = margins(*held.together())
    return float((high[:, None] >= low).mean())


def _f1(held: Samples) -> Array:
    return f1_of_classes(confusion(*held.together()))


def _f1_by_rank(held: Samples) -> Array:
    return np.array([f1_of_classes(confusion(*part)) for part in held.there])


@scored
def f1_of_predicted_classes(held: Samples) -> float:
    _, guessed, _ = confusion(*held.together())
    return float(_f1(held)[guessed > 0].mean())


@scored
def f1_of_classes_on_every_rank(held: Samples) -> float:
    everywhere = ~np.isnan(_f1_by_rank(held)).any(axis=0)
    return float(_f1(held)[everywhere].mean()) if everywhere.any() else held.right


@scored
def f1_averaged_with_zeros(held: Samples) -> float:
    occurs = ~np.isnan(_f1(held))
    return float(np.nan_to_num(_f1_by_rank(held)).mean(axis=0)[occurs].mean())


# ------------------------------------------------------------------------------ sums over the ranks, for all scores


def divided_by(divisor: str) -> ScoreEffect:
    """Divide the sum over all samples by another number than the number of samples."""

    def score(held: Samples) -> float:
        terms = held.terms()
        count = sum(map(len, terms))
        by = {
            "nothing": 1,
            "samples and ranks": count * len(held.parts),
            "samples and idle ranks": count + len(held.parts) - len(terms),
        }
        return FINISH[held.name](math.fsum(np.concatenate(terms)) / by[divisor])

    return ScoreEffect(score)


@scored
def mean_of_means_with_zeros(held: Samples) -> float:
    return FINISH[held.name](math.fsum(float(terms.mean()) for terms in held.terms()) / len(held.parts))


@scored
def mean_of_scores_with_zeros(held: Samples) -> float:
    return math.fsum(held.of([part]) for part in held.there) / len(held.parts)


@scored
def sum_of_scores(held: Samples) -> float:
    return math.fsum(held.of([part]) for part in held.there)


@scored
def rounded_for_display(held: Samples) -> float:
    return round(held.right, 3)


# fmt: off
table(
    globals(),
    Fault("rmse-of-absolute-differences", "RMSE is the mean absolute difference.",
          where=has_score, effect=mean_absolute_difference,
          caught_by=ALL_SAMPLES, cause="absolute-differences", score_names=RMSE),
    Fault("rmse-divided-by-samples", "RMSE divides by the number of samples, not by the number of elements.",
          where=has_score, effect=root_of_squares_by_samples,
          caught_by=ALL_SAMPLES, cause="divided-by-samples-only", score_names=RMSE),
    Fault("rmse-told-in-half-precision", "RMSE is rounded to float16.",
          where=has_score, effect=root_in_half_precision,
          caught_by=ALL_SAMPLES, cause="score-imprecise", score_names=RMSE),
    Fault("perplexity-without-exp", "Perplexity is the cross entropy, without exp.",
          where=has_score, effect=cross_entropy,
          caught_by=ALL_SAMPLES, cause="exp-not-taken", score_names=PERPLEXITY),
    Fault("perplexity-to-base-2", "Perplexity is 2 to the power of a cross entropy in nats.",
          where=has_score, effect=two_to_the_cross_entropy,
          caught_by=ALL_SAMPLES, cause="bits-for-nats", score_names=PERPLEXITY),
    Fault("perplexity-exp-before-mean", "Perplexity is the mean of exp of each sample's loss.",
          where=has_score, effect=mean_of_exponentials,
          caught_by=ALL_SAMPLES, cause="exp-of-each-sample", score_names=PERPLEXITY),
    Fault("accuracy-balanced-over-classes", "Accuracy is the mean of the classes' accuracies.",
          where=has_score, effect=mean_of_class_accuracies,
          caught_by=ALL_SAMPLES, cause="classes-weigh-equally", score_names=ACCURACY),
    Fault("error-told-for-accuracy", "Accuracy is the share of errors.",
          where=has_score, effect=share_of_errors,
          caught_by=ALL_SAMPLES, cause="score-complement", score_names=ACCURACY),
    Fault("auc-of-the-other-class", "AUC is computed for the other class.",
          where=has_score, effect=share_of_errors,
          caught_by=(ALL_SAMPLES, PAIRS), cause="classes-exchanged", score_names=AUC),
    Fault("auc-ties-in-order", "In AUC, pairs of equal outputs count fully.",
          where=has_score, effect=ties_in_order,
          caught_by=ALL_SAMPLES, cause="ties-count-fully", score_names=AUC),
    Fault("auc-ties-by-rank", "In AUC, equal outputs on different ranks count by the order of the ranks.",
          where=has_score, effect=ties_by_rank,
          caught_by=ALL_SAMPLES, cause="ties-go-by-rank", score_names=AUC),
    Fault("perplexity-of-plain-exponentials", "Perplexity takes exp() of the outputs without subtracting the largest.",
          where=has_score, effect=plain_exponentials,
          caught_by=FAR, cause="exp-overflows", score_names=PERPLEXITY),
    Fault("auc-half-without-pairs", "AUC is 0.5 instead of NaN if one class has no sample.",
          where=has_no_pair, effect=half_without_pairs,
          caught_by=PAIRS, cause="number-without-pairs", score_names=AUC),
    Fault("f1-of-predicted-classes-only", "Classes that are never predicted are left out of macro F1.",
          where=has_score, effect=f1_of_predicted_classes,
          caught_by=CLASSES, cause="unpredicted-class-left-out", score_names=F1),
    Fault("f1-of-classes-that-all-ranks-have", "Macro F1 leaves out classes that are missing on some rank.",
          where=has_score, effect=f1_of_classes_on_every_rank,
          caught_by=CLASSES, cause="class-missing-on-rank-left-out", score_names=F1),
    Fault("f1-of-ranks-averaged-with-zeros",
          "Each class's F1 is averaged over ranks, with 0 from ranks that lack the class.",
          where=has_score, effect=f1_averaged_with_zeros,
          caught_by=ALL_SAMPLES, cause="f1-mean-of-ranks-with-zeros", score_names=F1),
    Fault("score-of-an-undivided-sum", "The sum over samples is not divided.",
          where=has_score, effect=divided_by("nothing"),
          caught_by=ALL_SAMPLES, cause="score-not-divided", score_names=RMSE),
    Fault("score-divided-by-ranks-too", "The sum is divided by the number of samples and by the world size.",
          where=has_score, effect=divided_by("samples and ranks"),
          caught_by=ALL_SAMPLES, cause="score-divided-twice", score_names=RMSE),
    Fault("score-counts-one-for-idle-ranks", "A rank without samples counts as one sample.",
          where=has_score, effect=divided_by("samples and idle ranks"),
          caught_by=NOTHING, cause="empty-rank-counted-in-score", score_names=RMSE),
    Fault("score-of-means-with-zeros", "The ranks' means are averaged, with 0 from ranks without samples.",
          where=idle_rank, effect=mean_of_means_with_zeros,
          caught_by=NOTHING, cause="score-means-with-zeros", score_names=PERPLEXITY),
    Fault("mean-of-scores-with-zeros", "The ranks' scores are averaged, with 0 from ranks without samples.",
          where=has_score & idle_rank, effect=mean_of_scores_with_zeros,
          caught_by=NOTHING, cause="mean-of-rank-scores-with-zeros"),
    Fault("scores-of-ranks-added-up", "The ranks' scores are summed.",
          where=has_score, effect=sum_of_scores,
          caught_by=ALL_SAMPLES, cause="sum-of-rank-scores", score_names=RMSE | PERPLEXITY),
    Fault("score-rounded-for-display", "Scores are rounded to three decimals.",
          where=has_score, effect=rounded_for_display,
          caught_by=ALL_SAMPLES, cause="score-rounded"),
)
# fmt: on
