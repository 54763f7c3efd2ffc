"""The causes of a wrong number that is not an element of an array."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..causes import Cause
from .metrics.evidence import WrongMean
from .ordered_hypotheses import OF_A_MEAN, OF_A_MISSING_MEAN, OF_A_SCORE, OF_A_SPECIAL_SCORE
from .scores.evidence import WrongScore


def causes_of_mean(of: WrongMean) -> Iterator[Cause]:
    """All causes that explain a mean of metrics, the likeliest first."""
    for hypothesis in OF_A_MISSING_MEAN if of.got is None else OF_A_MEAN:
        yield from hypothesis(of)


def causes_of_score(of: WrongScore) -> Iterator[Cause]:
    """All causes that give this rank's score, within the rounding bound of the right one."""
    kind = _special(of)
    if kind:
        yield from OF_A_SPECIAL_SCORE[kind](of)
        return
    found = [cause for hypothesis in OF_A_SCORE for cause, score in hypothesis(of.held) if of.fits(score)]
    yield from found or OF_A_SPECIAL_SCORE["another number"](of)


def _special(of: WrongScore) -> str:
    if of.made.far:
        return "large values"
    if math.isnan(of.got):
        return "NaN"
    return "a number for NaN" if math.isnan(of.want) else ""
