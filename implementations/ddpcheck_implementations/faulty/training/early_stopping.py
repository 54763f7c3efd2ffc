"""Training runs that stop after the wrong epoch, or after different epochs on different ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from ddpcheck.contract.allowed_names import ALL_TRAINER_FEATURES as FEATURES

from ...data_parallel.trainer import Trainer
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.trainers import TrainerEffect, given, in_place_of, keeping_best, patient
from ..trainers import trainer

TOGETHER = "check_early_stopping_ends_all_ranks_together"
BEST = "check_best_weights_have_the_lowest_global_loss"

_ENOUGH = partial(in_place_of, "enough")


def _one_more(run: Trainer, right: Callable[..., bool], losses: Sequence[float]) -> bool:
    return len(losses) > 1 and right(losses[:-1]) and losses[-1] >= min(losses[:-1])


def _never_better(run: Trainer, losses: Sequence[float]) -> bool:
    latest = losses[-1 - (run.task.patience or 0) :]
    return len(latest) > (run.task.patience or 0) and latest == sorted(latest)


def _in_all(run: Trainer, losses: Sequence[float]) -> bool:
    worse = sum(loss >= min(losses[:epoch], default=math.inf) for epoch, loss in enumerate(losses))
    return worse >= (run.task.patience or 0)


def _by_a_margin(run: Trainer, losses: Sequence[float]) -> bool:
    lowest, since = math.inf, 0
    for loss in losses:
        lowest, since = (loss, 0) if loss < lowest - 1e-4 else (lowest, since + 1)
    return since >= (run.task.patience or 0)


def _past_nan(run: Trainer, losses: Sequence[float]) -> bool:
    lowest, since = math.inf, 0
    for loss in losses:
        lowest, since = (loss, 0) if loss < lowest else (lowest, since + (loss >= lowest))
    return since >= (run.task.patience or 0)


# fmt: off
table(
    globals(),
    Fault("patience-of-one-more", "Training stops one epoch later than the patience asks.",
          where=patient, caught_by=TOGETHER, cause="patience-one-more",
          effect=TrainerEffect("enough", _one_more),
          trainer_features=FEATURES),
    Fault("worse-than-the-epoch-before",
          "Each epoch's loss is compared with the previous epoch's, not with the lowest.",
          where=patient, caught_by=TOGETHER, cause="stops-by-other-loss",
          effect=_ENOUGH(_never_better),
          trainer_features=FEATURES),
    Fault("patience-without-end", "Training never stops early.",
          where=patient, caught_by=TOGETHER, cause="stops-by-other-loss",
          effect=_ENOUGH(lambda run, losses: False),
          trainer_features=FEATURES),
    Fault("an-equal-loss-is-lower", "An equal loss counts as lower, so a run in which nothing changes continues.",
          where=patient, caught_by=TOGETHER, cause="equal-loss-counts-as-lower",
          effect=_ENOUGH(lambda run, losses: losses[::-1].index(min(losses)) >= run.task.patience),
          trainer_features=FEATURES),
    Fault("patience-for-so-many-in-all", "Epochs without improvement are counted in total, not in a row.",
          where=patient, caught_by=TOGETHER, cause="patience-not-consecutive",
          effect=_ENOUGH(_in_all), trainer_features=FEATURES),
    Fault("better-by-a-margin-only", "A loss counts as lower only if it is lower by 1e-4.",
          where=patient, caught_by=TOGETHER, cause="small-improvement-ignored",
          effect=_ENOUGH(_by_a_margin),
          trainer_features=FEATURES),
    Fault("patience-without-nan", "An epoch with a loss of NaN does not count for the patience.",
          where=patient, caught_by=TOGETHER, cause="nan-does-not-count",
          effect=_ENOUGH(_past_nan), trainer_features=FEATURES),
    Fault("early-end-keeps-the-last", "After early stopping, the best weights are the last ones.",
          where=patient & keeping_best, caught_by=BEST, cause="best-is-last-of-early-stop",
          effect=in_place_of("best", lambda run: run.replica.parameters()),
          seen_in=("keras-team/keras#20323",), trainer_features=FEATURES),
    Fault("lowest-begins-at-a-number", "The lowest loss starts at 10^6, so larger losses never count as best.",
          where=always, caught_by=BEST, cause="lowest-starts-finite",
          effect=given("keep_best", lambda run, loss: loss if loss < 1e6 else math.inf), trainer_features=FEATURES),
)
# fmt: on


@trainer("each-rank-loses-its-own-patience", TOGETHER, cause="stops-by-own-loss", trainer_features=FEATURES)
class OwnPatience(Trainer):
    """Each rank decides to stop by its own loss."""

    def mean(self, total: float, samples: int) -> float:
        self.own = [*getattr(self, "own", ()), total / max(1, samples)]
        return super().mean(total, samples)

    def enough(self, losses: Sequence[float]) -> bool:
        return super().enough(self.own)
