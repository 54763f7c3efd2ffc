"""Runs that end early after the wrong epoch, or on each rank after another one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ddpcheck.contract.names import ALL_TRAINER_FEATURES as FEATURES
from ddpcheck.seeded_values import Array

from ...data_parallel.trainer import Trainer
from ..trainers import trainer

TOGETHER = "check_early_stopping_ends_all_ranks_together"


@trainer("each-rank-loses-its-own-patience", TOGETHER, cause="stops-by-own-loss", trainer_features=FEATURES)
class OwnPatience(Trainer):
    """Each rank looks at the loss of its own samples."""

    def mean(self, total: float, samples: int) -> float:
        self.own = [*getattr(self, "own", ()), total / max(1, samples)]
        return super().mean(total, samples)

    def enough(self, losses: Sequence[float]) -> bool:
        return super().enough(self.own)


@trainer("patience-of-one-more", TOGETHER, cause="patience-one-more", trainer_features=FEATURES)
class PatienceOfOneMore(Trainer):
    """The count begins after the first epoch that was no better."""

    def enough(self, losses: Sequence[float]) -> bool:
        return len(losses) > 1 and super().enough(losses[:-1]) and losses[-1] >= min(losses[:-1])


@trainer("worse-than-the-epoch-before", TOGETHER, cause="stops-by-other-loss", trainer_features=FEATURES)
class WorseThanBefore(Trainer):
    """Counts epochs that are no better than the one before them."""

    def enough(self, losses: Sequence[float]) -> bool:
        latest = losses[-1 - (self.task.patience or self.task.epochs) :]
        return len(latest) > (self.task.patience or self.task.epochs) and latest == sorted(latest)


@trainer("patience-without-end", TOGETHER, cause="stops-by-other-loss", trainer_features=FEATURES)
class WithoutEnd(Trainer):
    """The loss is looked at, and nothing follows."""

    def enough(self, losses: Sequence[float]) -> bool:
        return False


@trainer("an-equal-loss-is-lower", TOGETHER, cause="equal-loss-counts-as-lower", trainer_features=FEATURES)
class EqualIsLower(Trainer):
    """The count begins at the last of equal losses, so that a run in which nothing changes goes on."""

    def enough(self, losses: Sequence[float]) -> bool:
        return self.task.patience is not None and list(losses)[::-1].index(min(losses)) >= self.task.patience


@trainer("patience-for-so-many-in-all", TOGETHER, cause="patience-not-consecutive", trainer_features=FEATURES)
class SoManyInAll(Trainer):
    """An epoch that is better does not set the count back."""

    def enough(self, losses: Sequence[float]) -> bool:
        worse = sum(loss >= min(losses[:epoch], default=math.inf) for epoch, loss in enumerate(losses))
        return self.task.patience is not None and worse >= self.task.patience


@trainer("better-by-a-margin-only", TOGETHER, cause="small-improvement-ignored", trainer_features=FEATURES)
class BetterByAMargin(Trainer):
    """An epoch is no better if its loss is less than 1e-4 lower."""

    def enough(self, losses: Sequence[float]) -> bool:
        lowest, since = math.inf, 0
        for loss in losses:
            lowest, since = (loss, 0) if loss < lowest - 1e-4 else (lowest, since + 1)
        return self.task.patience is not None and since >= self.task.patience


BEST = "check_best_weights_have_the_lowest_global_loss"


@trainer(
    "early-end-keeps-the-last",
    BEST,
    seen_in=("keras-team/keras#20323",),
    cause="best-is-last-of-early-stop",
    trainer_features=FEATURES,
)
class EarlyEndKeepsTheLast(Trainer):
    """Patience and the best weights do not know of each other: who stops early has the weights that made it stop."""

    def best(self) -> Mapping[str, Array] | None:
        if self.task.patience is None or not self.task.keep_best:
            return super().best()
        return self.replica.parameters()


@trainer("lowest-begins-at-a-number", BEST, cause="lowest-starts-finite", trainer_features=FEATURES)
class LowestBeginsAtANumber(Trainer):
    """The lowest loss so far is 10^6 at first, which is high enough for any loss of the authors' models."""

    def keep_best(self, loss: float) -> None:
        if loss < 1e6:
            super().keep_best(loss)
