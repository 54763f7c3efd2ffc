"""Scores that are a function of a mean of terms, with a wrong sum or count."""

from __future__ import annotations

import math

import numpy as np

from ...causes import scores as causes
from ...oracle.scores import FINISH, TERMS
from ...seeded_values import Array
from .samples import Named, SamplesByRank


def of_a_narrow_count(held: SamplesByRank) -> Named:
    """The number of samples is rounded to float16."""
    if held.name not in TERMS:
        return
    terms = _terms(held)
    count = sum(map(len, terms))
    if 0 < count < np.finfo(np.float16).max and (narrow := float(np.float16(count))) != count:
        total = math.fsum(np.concatenate(terms))
        yield (
            causes.COUNT_IN_HALF_PRECISION(),
            FINISH[held.name](total / narrow),
        )


def of_terms(held: SamplesByRank) -> Named:
    """Means of ranks count equally, or sums are not divided, or divided twice."""
    if held.name not in TERMS:
        return
    terms = _terms(held)
    finish, total = FINISH[held.name], math.fsum(np.concatenate(terms))
    count, empty = sum(map(len, terms)), held.world - len(terms)
    means = [float(each.mean()) for each in terms]
    yield (
        causes.SCORE_MEANS_UNWEIGHTED(),
        finish(math.fsum(means) / len(means)),
    )
    if empty:
        yield causes.EMPTY_RANK_COUNTED_IN_SCORE(), finish(total / (count + empty))
        yield (
            causes.SCORE_MEANS_WITH_ZEROS(),
            finish(math.fsum(means) / held.world),
        )
    if held.name != "perplexity":
        yield causes.SCORE_NOT_DIVIDED(), finish(total)
        yield causes.SCORE_DIVIDED_TWICE(), finish(total / count / held.world)


def _terms(held: SamplesByRank) -> list[Array]:
    """The contribution of each rank that has samples to the score's sum."""
    return [TERMS[held.name](*part) for part in held.parts if len(part[0])]
