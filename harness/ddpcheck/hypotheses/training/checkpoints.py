"""Causes of a resumed run that differs from an uninterrupted run."""

from __future__ import annotations

from ...causes import Cause, training
from ...job import Train
from ...trace import Trace
from .final_parameters import Causes


def why_only_special_runs_fail(plan: Train, trace: Trace) -> Causes:
    """The causes why only this run fails, and not one on one rank, or with a fast disk that all ranks share."""
    culprit = trace.first_failure
    missing = culprit is not None and "FileNotFoundError" in culprit.error
    if missing and culprit is not None and culprit.rank == 0:
        return (training.CHECKPOINT_NOT_THERE_YET(),)
    if plan.rank_0_only:
        return (training.RANKS_DECIDE_RESUME(),)
    return (training.NOBODY_WAITS_FOR_RANK_0(),) * (plan.slow_disk or missing)


def why_other_epochs(more: int, first: int) -> Cause:
    """more: the number of epochs too many after a resume with epoch `first`."""
    if more == first:
        return training.EPOCH_NOT_RESTORED()
    return training.EPOCHS_TRAINED_AGAIN() if more > 0 else training.EPOCHS_SKIPPED()


def why_other_samples(got: list[int], whole: list[list[int]], epoch: int, first: int) -> Cause:
    """whole: the samples of an uninterrupted run, by epoch."""
    should = whole[epoch]
    if got == whole[epoch - first] != should:
        return training.EPOCHS_FROM_ZERO(epoch=epoch - first)
    if len(got) < len(should) and got == should[len(should) - len(got) :]:
        return training.POSITION_KEPT_ON_RESUME()
    return training.ORDER_NOT_BY_SEED_AND_EPOCH()
