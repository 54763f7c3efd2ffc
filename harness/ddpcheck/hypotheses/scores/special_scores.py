"""Causes of a score by its value alone: NaN, a number in place of NaN, and small differences."""

from __future__ import annotations

from collections.abc import Iterator

from ...causes import Cause
from ...causes import scores as causes
from ...causes.metrics import NUMBER_WITHOUT_SAMPLES
from ...oracle.scores import counted
from .evidence import WrongScore


def of_large_values(of: WrongScore) -> Iterator[Cause]:
    """No other hypothesis fits. A score that is too large is not cut off."""
    if of.made.lifted:
        yield causes.EXP_OVERFLOWS()
    elif of.made.name == "rmse":
        yield causes.SQUARES_SUMMED_APART()
    elif not of.got > of.want:
        yield causes.LOSS_CUT_OFF()


def of_nan(of: WrongScore) -> Iterator[Cause]:
    """NaN in place of a number."""
    if of.made.empty:
        yield causes.PADDING_TIMES_NAN()
    if counted(of.made.indices) == (0,):
        yield causes.SAMPLE_0_LEFT_OUT()
    if any(not len(outputs) for outputs, _ in of.held.parts):
        yield causes.NAN_OF_EMPTY_RANK()
    elif of.made.name == "auc":
        yield causes.NAN_OF_ONE_CLASS()


def of_number_for_nan(of: WrongScore) -> Iterator[Cause]:
    """A number in place of NaN."""
    yield causes.NUMBER_WITHOUT_PAIRS() if counted(of.made.indices) else NUMBER_WITHOUT_SAMPLES()


def of_other_number(of: WrongScore) -> Iterator[Cause]:
    """A number that no hypothesis predicts."""
    if of.made.name == "auc" and of.made.values == "real":
        yield causes.OUTPUTS_TAKEN_FOR_EQUAL()
    elif abs(of.got - of.want) <= 2e-3 * abs(of.want):
        yield causes.SCORE_IMPRECISE()
