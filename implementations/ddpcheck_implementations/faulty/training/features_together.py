"""Training runs that are wrong if two features are combined, such as checkpoints and clipping."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ddpcheck.contract.allowed_names import ALL_TRAINER_FEATURES
from ddpcheck.contract.trainer import TrainingRun, TrainingTask
from ddpcheck.seeded_values import Array

from ...data_parallel.checkpoint import Checkpoint
from ...data_parallel.trainer import Engine, Trainer, Window
from ..engine.circumstances import Circumstance, always
from ..engine.fault import Fault, table
from ..engine.trainers import (
    TrainerEffect,
    accumulating,
    after,
    in_place_of,
    left_out,
    of_task,
    result,
    resumed,
)
from ..trainers import trainer
from .epoch_boundaries import ENDS
from .resuming import BEST, RESUMED

ACCUMULATED = "check_training_run_with_accumulation_matches_one_process"
EARLY = "check_early_stopping_ends_all_ranks_together"

LOSSES = "check_training_run_reports_loss_over_all_samples"


def _clip_no_more(run: Trainer) -> None:
    if run.progress.epoch:
        run.task = replace(run.task, max_norm=None)


def _short_summed(run: Any, right: Callable[..., float], rows: Sequence[int], weight: float) -> float:
    return right(rows, weight * run.world if len(rows) < run.task.batch_size else weight)


_with_frozen_layers = Circumstance("with frozen layers", lambda run: "frozen" in run.task.model.features())
_with_labels = Circumstance("with labels", lambda run: run.task.model.loss == "cross_entropy")

# fmt: off
table(
    globals(),
    Fault("not-clipped-after-resume", "A resumed run does not clip.",
          where=always, caught_by=RESUMED, cause="resume-loses-clipping", world_size=1,
          effect=after("resume", _clip_no_more)),
    Fault("best-not-with-micro-batches", "With accumulation, the best weights are not recorded.",
          where=accumulating, caught_by=BEST, cause="best-not-copied", world_size=1,
          effect=left_out("keep_best")),
    Fault("ids-as-floats", "Inputs are converted to the model's dtype, so ids become floats.",
          where=always, caught_by=ENDS, cause="rank-raised", world_size=1,
          effect=of_task(lambda task: replace(task, inputs=task.inputs.astype(task.model.dtype)))),
    Fault("frozen-layers-accumulate-by-sums", "With frozen layers, micro-batches are summed instead of averaged.",
          where=_with_frozen_layers, caught_by=ACCUMULATED, world_size=1,
          effect=result("weight", lambda run, weight: 1.0),
          cause="micro-batches-summed"),
    Fault("losses-of-labels-by-full-batches", "With labels, the loss of a short batch counts as that of a full one.",
          where=_with_labels, caught_by=LOSSES, world_size=1,
          effect=in_place_of("summed", lambda run, losses, window: sum(losses) * run.task.batch_size),
          cause="epoch-loss-short-as-full"),
    Fault("never-early-with-micro-batches", "With accumulation, training never stops early.",
          where=accumulating, caught_by=EARLY, cause="stops-by-other-loss",
          effect=in_place_of("enough", lambda run, losses: False),
          world_size=1, trainer_features=ALL_TRAINER_FEATURES),
    Fault("saved-until-resumed-with-micro-batches", "With accumulation, a resumed run writes no checkpoints.",
          where=accumulating & resumed, caught_by=RESUMED, world_size=1,
          effect=left_out("save"), cause="epochs-trained-again"),
    Fault("best-forgotten-with-micro-batches", "With accumulation, checkpoints lack the best weights.",
          where=accumulating, caught_by=RESUMED, world_size=1,
          effect=result("checkpoint", lambda run, made: replace(made, best={}, lowest=math.inf)),
          cause="best-forgotten-on-resume"),
    Fault("short-batches-are-summed", "Gradients of a batch that is not full are summed over ranks.",
          where=always, caught_by=ENDS, cause="gradients-summed-over-ranks",
          effect=TrainerEffect("backward",
                               _short_summed)),
)
# fmt: on


@trainer(
    "weight-decay-not-scheduled",
    "check_training_run_applies_its_learning_rate_schedule",
    cause="decay-at-first-rate",
    world_size=1,
)
class DecayNotScheduled(Trainer):
    """Weight decay is applied separately, with the initial learning rate."""

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        super().__init__(engine, replace(task, optimizer=replace(task.optimizer, weight_decay=0.0)))
        self.decay = task.optimizer.lr * task.optimizer.weight_decay

    def update(self, window: Window) -> float:
        before = self.replica.parameters()
        loss = super().update(window)
        network = self.replica._network
        for name in network.learned:
            network.parameters[name] -= np.asarray(self.decay * before[name], before[name].dtype)
        return loss


@trainer("frozen-layers-not-saved", RESUMED, cause="frozen-layer-trained")
class FrozenNotSaved(Trainer):
    """Checkpoints lack frozen layers, so each rank keeps its own initial values."""

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        super().__init__(engine, task)
        self.initial: Mapping[str, Array] = {name: np.array(array) for name, array in task.initial.items()}

    def resume(self) -> None:
        super().resume()
        network = self.replica._network
        for name in network.parameters.keys() - set(network.learned) if self.progress.epoch else ():
            network.parameters[name][...] = self.initial[name]


@trainer(
    "ends-early-with-the-best-weights",
    EARLY,
    cause="ends-with-epoch",
    trainer_features=ALL_TRAINER_FEATURES,
)
class EndsEarlyWithTheBest(Trainer):
    """A run that stops early returns the best weights instead of the last ones."""

    lowest: tuple[float, Mapping[str, Array]] = math.inf, {}

    def keep_best(self, loss: float) -> None:
        if loss < self.lowest[0]:
            self.lowest = loss, self.replica.parameters()
        super().keep_best(loss)

    def run(self) -> TrainingRun:
        run = super().run()
        early = self.task.patience is not None and not self.task.keep_best and len(run.losses) < self.task.epochs
        return replace(run, parameters=self.lowest[1]) if early else run


@trainer("saved-an-epoch-late", RESUMED, cause="last-epoch-not-saved", world_size=1)
class SavedLate(Trainer):
    """A checkpoint holds the state of one epoch with the number of the next."""

    before: Mapping[str, Array] | None = None

    def checkpoint(self) -> Checkpoint:
        made = super().checkpoint()
        state, self.before = self.before or made.state, made.state
        return replace(made, state=state)


@trainer(
    "every-third-update-is-left-out",
    ENDS,
    cause="parameters-not-stepped",
    world_size=1,
)
class EveryThirdUpdate(Trainer):
    """Every third step is skipped."""

    def step(self) -> None:
        before = self.replica.state()
        super().step()
        if not self.progress.step % 3:
            self.replica.load_state(before)
