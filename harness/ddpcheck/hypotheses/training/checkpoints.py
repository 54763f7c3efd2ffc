"""Hypotheses about a resumed run that differs from an uninterrupted run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...causes import Cause
from ...causes.training import resumes as causes
from ...job import Train
from ...trace import Trace

Samples = Sequence[Sequence[Sequence[int]]]
"""The samples that a run used: of each rank, of each epoch, in their order."""


@dataclass(frozen=True)
class SpecialRun:
    """A resumed run that fails, where checkpoints are on one rank only, or on a slow disk."""

    plan: Train
    trace: Trace

    @property
    def missing_on(self) -> int:
        """The rank that found no checkpoint; -1 if there is none."""
        culprit = self.trace.first_failure
        return culprit.rank if culprit is not None and "FileNotFoundError" in culprit.error else -1


@dataclass(frozen=True)
class OtherEpochs:
    """A run that was resumed with epoch `first`, and that trained this many epochs too many; negative: too few."""

    first: int
    more: int


@dataclass(frozen=True)
class OtherSamples:
    """The samples of a rank in an epoch after resuming with epoch `first`, which differ from the uninterrupted run's.

    whole: of the uninterrupted run. resumed: from epoch `first` on.
    """

    whole: Samples
    resumed: Samples
    rank: int
    epoch: int
    first: int

    @property
    def got(self) -> Sequence[int]:
        return self.resumed[self.rank][self.epoch - self.first]

    @property
    def should(self) -> Sequence[int]:
        return self.whole[self.rank][self.epoch]

    @property
    def pairs(self) -> list[tuple[Sequence[int], Sequence[int]]]:
        """Of each rank that resumed for so many epochs: the samples of the uninterrupted run, and those after resuming."""
        at = self.epoch - self.first
        every = zip(self.whole, self.resumed, strict=True)
        return [(whole[self.epoch], resumed[at]) for whole, resumed in every if at < len(resumed)]


def checkpoint_not_there_yet(of: SpecialRun) -> Cause | None:
    """Rank 0 found no checkpoint: it reads before it, or another process, has written."""
    return causes.CHECKPOINT_NOT_THERE_YET() if of.missing_on == 0 else None


def ranks_decide_resume(of: SpecialRun) -> Cause | None:
    """Only rank 0 sees the checkpoint."""
    return causes.RANKS_DECIDE_RESUME() if of.plan.rank_0_only else None


def nobody_waits_for_rank_0(of: SpecialRun) -> Cause | None:
    """Rank 0's disk is slow, or another rank found no checkpoint."""
    return causes.NOBODY_WAITS_FOR_RANK_0() if of.plan.slow_disk or of.missing_on > 0 else None


def epoch_not_restored(of: OtherEpochs) -> Cause | None:
    """The run trains all epochs again."""
    return causes.EPOCH_NOT_RESTORED() if of.first and of.more == of.first else None


def epochs_trained_again(of: OtherEpochs) -> Cause | None:
    return causes.EPOCHS_TRAINED_AGAIN() if of.first and of.more > 0 else None


def epochs_skipped(of: OtherEpochs) -> Cause | None:
    return causes.EPOCHS_SKIPPED() if of.first else None


def random_state_of_rank_0(of: OtherSamples) -> Cause | None:
    """Rank 0 has its samples in the right order; other ranks have theirs in another order."""
    other = tuple(rank for rank, (whole, resumed) in enumerate(of.pairs) if whole != resumed)
    moved = all(sorted(whole) == sorted(resumed) for whole, resumed in of.pairs)
    explains = of.first and other and moved and len(of.pairs) > 1 and 0 not in other
    return causes.RANDOM_STATE_OF_RANK_0(ranks=other) if explains else None


def epochs_from_zero(of: OtherSamples) -> Cause | None:
    """The order is that of an epoch counted from the resume."""
    counted = of.got == of.whole[of.rank][of.epoch - of.first] != of.should
    return causes.EPOCHS_FROM_ZERO(epoch=of.epoch - of.first) if counted else None


def position_kept_on_resume(of: OtherSamples) -> Cause | None:
    """The first samples of the epoch are absent."""
    skipped = len(of.should) - len(of.got)
    return causes.POSITION_KEPT_ON_RESUME() if skipped > 0 and of.got == of.should[skipped:] else None


def order_not_by_seed_and_epoch(of: OtherSamples) -> Cause:
    return causes.ORDER_NOT_BY_SEED_AND_EPOCH()
