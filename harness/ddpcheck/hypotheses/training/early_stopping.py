"""Hypotheses about a run with early stopping that ends too early, too late, or not on all ranks."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ...causes import Cause
from ...causes.training import early_stopping as causes
from ...job import Train
from ...oracle.training_runs import lasts


@dataclass(frozen=True)
class OtherStop:
    """A run with these losses that stopped after this wrong number of epochs."""

    epochs: int
    losses: Sequence[float]
    plan: Train

    @property
    def patience(self) -> int:
        return self.plan.patience or self.plan.epochs

    @property
    def full(self) -> bool:
        """Whether it trained all epochs."""
        return self.epochs == self.plan.epochs

    @property
    def with_equal(self) -> float:
        """The epochs of a run for which an equal loss is a lower one."""
        return lasts(self.losses, self.patience, operator.le)

    @property
    def by_epoch_before(self) -> float:
        """The epoch after which the loss was `patience` times in a row no lower than in the previous epoch."""
        since = 0
        for epoch, (before, loss) in enumerate(pairwise(self.losses), start=2):
            since = since + 1 if loss >= before else 0
            if since >= self.patience:
                return epoch
        return math.inf

    @property
    def not_consecutive(self) -> float:
        """The epoch after which `patience` epochs in all had no lower loss than the lowest before."""
        since, lowest = 0, math.inf
        for epoch, loss in enumerate(self.losses, start=1):
            since += loss >= lowest
            lowest = min(lowest, loss)
            if since >= self.patience:
                return epoch
        return math.inf

    @property
    def past_nan(self) -> float:
        """The epochs of a run in which those with a loss of NaN do not count."""
        since, lowest = 0, math.inf
        for epoch, loss in enumerate(self.losses, start=1):
            since, lowest = (0, loss) if loss < lowest else (since + (not math.isnan(loss)), lowest)
            if since >= self.patience:
                return epoch
        return math.inf


def stops_by_own_loss(plan: Train) -> Cause | None:
    """A run with early stopping does not end on all ranks."""
    return causes.STOPS_BY_OWN_LOSS() if plan.patience else None


def equal_loss_counts_as_lower(of: OtherStop) -> Cause | None:
    """The run trains all epochs, and its lowest loss comes again."""
    again = of.full and of.losses.count(min(of.losses)) > 1 and of.with_equal > of.epochs
    return causes.EQUAL_LOSS_COUNTS_AS_LOWER() if again else None


def nan_does_not_count(of: OtherStop) -> Cause | None:
    """The run goes on in epochs whose loss is NaN."""
    on = of.past_nan > lasts(of.losses, of.patience) and of.epochs == min(of.past_nan, of.plan.epochs)
    return causes.NAN_DOES_NOT_COUNT() if on else None


def never_stops(of: OtherStop) -> tuple[Cause, ...]:
    """The run trains all epochs; one that compares each loss with the one before would, too."""
    if not of.full or of.by_epoch_before <= of.epochs:
        return ()
    return causes.NO_RULE_OF_STOPPING(), causes.COMPARED_WITH_EPOCH_BEFORE()


def by_other_rules(of: OtherStop) -> tuple[Cause, ...]:
    """A run with another rule of stopping ends after this epoch."""
    rules = [
        (causes.EQUAL_LOSS_COUNTS_AS_LOWER(), of.with_equal),
        (causes.PATIENCE_ONE_MORE(), lasts(of.losses, of.patience + 1)),
        (causes.PATIENCE_ONE_LESS(), lasts(of.losses, of.patience - 1)),
        (causes.COMPARED_WITH_EPOCH_BEFORE(), of.by_epoch_before),
        (causes.PATIENCE_NOT_CONSECUTIVE(), of.not_consecutive),
        (causes.SMALL_IMPROVEMENT_IGNORED(), lasts([round(loss, 3) for loss in of.losses], of.patience)),
    ]
    return tuple(cause for cause, end in rules if of.epochs == end < of.plan.epochs)


def no_rule_of_stopping(of: OtherStop) -> Cause:
    return causes.NO_RULE_OF_STOPPING()
