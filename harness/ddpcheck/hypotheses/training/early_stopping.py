"""Causes of a run that stops too early or too late."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from itertools import pairwise

from ...causes import Cause, training
from ...job import Train
from ...oracle.training_runs import lasts


def why_other_end(epochs: int, losses: Sequence[float], plan: Train) -> tuple[Cause, ...]:
    """The rules by which a run with these losses ends after this many epochs."""
    patience = plan.patience or plan.epochs
    equal, before = lasts(losses, patience, operator.le), _rises(losses, patience)
    if epochs == plan.epochs and losses.count(min(losses)) > 1 and equal > epochs:
        return (training.EQUAL_LOSS_COUNTS_AS_LOWER(),)
    if epochs == plan.epochs < before:
        return training.NO_RULE_OF_STOPPING(), training.COMPARED_WITH_EPOCH_BEFORE()
    rules = [
        (training.EQUAL_LOSS_COUNTS_AS_LOWER(), equal),
        (training.PATIENCE_ONE_MORE(), lasts(losses, patience + 1)),
        (training.PATIENCE_ONE_LESS(), lasts(losses, patience - 1)),
        (training.COMPARED_WITH_EPOCH_BEFORE(), before),
        (training.PATIENCE_NOT_CONSECUTIVE(), _in_all(losses, patience)),
        (training.SMALL_IMPROVEMENT_IGNORED(), lasts([round(loss, 3) for loss in losses], patience)),
    ]
    fitting = (cause for cause, end in rules if epochs == min(end, plan.epochs) and epochs < plan.epochs)
    return tuple(fitting) or (training.NO_RULE_OF_STOPPING(),)


def _in_all(losses: Sequence[float], patience: int) -> float:
    """The epoch after which `patience` epochs in all had no lower loss than the lowest before."""
    since, lowest = 0, math.inf
    for epoch, loss in enumerate(losses, start=1):
        since += loss >= lowest
        lowest = min(lowest, loss)
        if since >= patience:
            return epoch
    return math.inf


def _rises(losses: Sequence[float], patience: int) -> float:
    """The epoch after which the loss was `patience` times in a row no lower than in the previous epoch."""
    since = 0
    for epoch, (before, loss) in enumerate(pairwise(losses), start=2):
        since = since + 1 if loss >= before else 0
        if since >= patience:
            return epoch
    return math.inf
