"""Runs that end early after the wrong epoch, or on each rank after another one."""

from __future__ import annotations

from collections.abc import Sequence

from ddpcheck.capabilities import ALL_TRAINER_FEATURES as FEATURES

from ..data_parallel.trainer import Trainer
from .trainers import trainer

TOGETHER = "check_ranks_stop_early_together"


@trainer("each-rank-loses-its-own-patience", "classic", TOGETHER, words="by its own loss", trainer_features=FEATURES)
class OwnPatience(Trainer):
    """Each rank looks at the loss of its own samples."""

    def mean(self, total: float, samples: int) -> float:
        self.own = [*getattr(self, "own", ()), total / max(1, samples)]
        return super().mean(total, samples)

    def enough(self, losses: Sequence[float]) -> bool:
        return super().enough(self.own)


@trainer("patience-of-one-more", "classic", TOGETHER, words="one epoch more", trainer_features=FEATURES)
class PatienceOfOneMore(Trainer):
    """The count begins after the first epoch that was no better."""

    def enough(self, losses: Sequence[float]) -> bool:
        return len(losses) > 1 and super().enough(losses[:-1]) and losses[-1] >= min(losses[:-1])


@trainer(
    "worse-than-the-epoch-before", "classic", TOGETHER, words="by another one, or by none", trainer_features=FEATURES
)
class WorseThanBefore(Trainer):
    """Counts epochs that are no better than the one before them."""

    def enough(self, losses: Sequence[float]) -> bool:
        latest = losses[-1 - (self.task.patience or self.task.epochs) :]
        return len(latest) > (self.task.patience or self.task.epochs) and latest == sorted(latest)


@trainer("patience-without-end", "classic", TOGETHER, words="by another one, or by none", trainer_features=FEATURES)
class WithoutEnd(Trainer):
    """The loss is looked at, and nothing follows."""

    def enough(self, losses: Sequence[float]) -> bool:
        return False


@trainer("an-equal-loss-is-lower", "classic", TOGETHER, words="taken for lower", trainer_features=FEATURES)
class EqualIsLower(Trainer):
    """The count begins at the last of equal losses, so that a run in which nothing changes goes on."""

    def enough(self, losses: Sequence[float]) -> bool:
        return self.task.patience is not None and list(losses)[::-1].index(min(losses)) >= self.task.patience
