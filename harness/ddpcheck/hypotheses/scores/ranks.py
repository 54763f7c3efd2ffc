"""Scores that are combined wrongly over ranks or calls."""

from __future__ import annotations

import math

import numpy as np

from ...causes import scores as causes
from ...oracle.scores import counted, score_of
from .samples import Named, SamplesByRank


def of_earlier(held: SamplesByRank) -> Named:
    """Samples of earlier calls count, or their score is returned again."""
    alike = [each for each in held.before if each.name == held.name and each.classes == held.made.classes]
    for number in range(len(alike)):
        rows = [each.rows(counted(each.indices)) for each in (*alike[number:], held.made)]
        outputs, targets = (np.concatenate([row[part] for row in rows]) for part in (0, 1))
        yield (
            causes.SCORE_ACCUMULATES_CALLS(),
            score_of(held.name, outputs, targets),
        )
    for each in alike:
        yield causes.SCORE_OF_EARLIER_CALL(), SamplesByRank(each).of([counted(each.indices)])


def of_ranks(held: SamplesByRank) -> Named:
    """Scores of ranks are averaged, summed, or not combined."""
    name, there = held.name, [place for place, (outputs, _) in enumerate(held.parts) if len(outputs)]
    scores = {place: held.of_ranks([place]) for place in there}
    told = {place: score for place, score in scores.items() if not math.isnan(score)}
    if not told:
        return
    total = math.fsum(told.values())
    yield causes.MEAN_OF_RANK_SCORES(), total / len(told)
    if len(told) < held.world:
        yield causes.MEAN_OF_RANK_SCORES_WITH_ZEROS(), total / held.world
    sizes = {place: len(held.parts[place][0]) for place in told}
    weighted = math.fsum(told[place] * size for place, size in sizes.items()) / sum(sizes.values())
    yield (
        causes.WEIGHTED_MEAN_OF_RANK_SCORES(score=name),
        weighted,
    )
    if held.world > 1:
        yield causes.SUM_OF_RANK_SCORES(), total
        yield causes.SCORE_NOT_COMBINED(), scores.get(held.rank, math.nan)


def of_some_ranks(held: SamplesByRank) -> Named:
    """Tried after causes of the score itself: with few samples, one rank's score may equal a mistake by chance."""
    there = [place for place, (outputs, _) in enumerate(held.parts) if len(outputs)]
    for place in there if held.world > 1 else ():
        yield causes.SCORE_OF_ONE_RANK(rank=place), held.of_ranks([place])
    for place in there if len(there) > 1 else ():
        yield causes.RANK_MISSING_FROM_SCORE(rank=place), held.of_ranks(other for other in there if other != place)
