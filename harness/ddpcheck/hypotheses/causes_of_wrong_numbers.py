"""The causes of a wrong number that is no element of an array."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ..causes import Cause
from .choose_causes import first_cause
from .metrics.evidence import WrongMean
from .metrics.names import OtherNames
from .ordered_hypotheses.metrics import (
    OF_A_MEAN,
    OF_A_MISSING_MEAN,
    OF_A_SCORE,
    OF_A_SPECIAL_SCORE,
    OF_MIXED_UP_NAMES,
    OF_OTHER_NAMES,
)
from .scores.evidence import WrongScore

_TOLD = 2
"""Causes of a wrong number that are told."""


def causes_of_means(wrong: Sequence[WrongMean]) -> dict[int, tuple[Cause, ...]]:
    """The likeliest causes of the wrong means of some ranks, by rank.

    Explanations of all ranks' numbers come before those of one rank, which may be chance.
    """
    fitting = {of.rank: list(causes_of_mean(of)) for of in wrong}
    return {
        rank: tuple(sorted(found, key=lambda cause: not all(cause in each for each in fitting.values()))[:_TOLD])
        for rank, found in fitting.items()
    }


def causes_of_names(of: OtherNames) -> tuple[Cause, ...]:
    """The likeliest cause of wrong named metrics."""
    return first_cause((*OF_OTHER_NAMES, _of_all_names, *OF_MIXED_UP_NAMES), of)


def _of_all_names(of: OtherNames) -> Cause | None:
    """The cause that explains all that is wrong, as the n-th metric is n times the first."""
    places = enumerate(of.made.names, start=1)
    firsts = [of.got[name] / place for place, name in places if name in of.wrong]
    explained = [dict.fromkeys(causes_of_mean(WrongMean(of.made, first, of.rank))) for first in firsts]
    return next((cause for cause in explained[0] if all(cause in others for others in explained)), None)


def causes_of_scores(wrong: Sequence[WrongScore]) -> tuple[Cause, ...]:
    """The likeliest causes of the wrong scores of some ranks: of all of them, or else of the first."""
    fitting = [list(causes_of_score(of)) for of in wrong]
    of_all = [cause for cause in dict.fromkeys(fitting[0]) if all(cause in each for each in fitting)]
    return tuple((of_all or fitting[0][:1])[:_TOLD])


def causes_of_mean(of: WrongMean) -> Iterator[Cause]:
    """All that explain a mean of metrics, the likeliest first."""
    for hypothesis in OF_A_MISSING_MEAN if of.got is None else OF_A_MEAN:
        yield from hypothesis(of)


def causes_of_score(of: WrongScore) -> Iterator[Cause]:
    """All that give this rank's score, within the rounding that the right one may have."""
    kind, found = _special(of), list[Cause]()
    if kind in ("large values", "another number"):
        found = [cause for hypothesis in OF_A_SCORE for cause, score in hypothesis(of.held) if of.fits(score)]
    yield from found or OF_A_SPECIAL_SCORE[kind](of)


def _special(of: WrongScore) -> str:
    if of.made.far or of.made.lifted:
        return "large values"
    if math.isnan(of.got):
        return "NaN"
    return "a number for NaN" if math.isnan(of.want) else "another number"
