"""Training runs that are wrong for rare combinations of features."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ddpcheck.contract.trainer import TrainingRun, TrainingTask

from ...data_parallel.trainer import Trainer, Window
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.trainers import TrainerEffect, given, in_place_of, of_task, set_progress
from ..trainers import trainer
from .epoch_boundaries import ENDS
from .resuming import BEST, RESUMED

USES = "check_training_run_uses_every_sample"
ACCUMULATED = "check_training_run_with_accumulation_matches_one_process"


def _with_nan(run: Any, loss: float) -> None:
    if not loss >= run.progress.lowest:
        set_progress(run, lowest=loss, best=run.replica.parameters())


def _one_sample_each(run: Any, right: Callable[[], TrainingRun]) -> TrainingRun:
    run.task.inputs[run.rank]
    return right()


def _seeded(run: Trainer, epoch: int) -> int:
    np.random.RandomState(run.task.seed + epoch)
    return epoch


def _without_decay(task: TrainingTask) -> TrainingTask:
    return replace(task, optimizer=replace(task.optimizer, weight_decay=0.0))


# fmt: off
table(
    globals(),
    Fault("weight-decay-not-with-micro-batches", "With accumulation, the optimizer is created without weight decay.",
          where=always, caught_by=ACCUMULATED, cause="run-without-weight-decay",
          effect=of_task(lambda task: task if task.micro_batches == 1 else _without_decay(task)), world_size=1),
    Fault("adam-not-clipped", "Runs with Adam do not clip.",
          where=always, caught_by=ACCUMULATED, cause="run-not-clipped", world_size=1,
          effect=of_task(lambda task: replace(task, max_norm=None) if task.optimizer.name == "adam" else task)),
    Fault("best-by-a-thousandth", "A loss counts as best only if it is lower by 0.001.",
          where=always, caught_by=BEST, cause="small-gain-ignored", world_size=1,
          effect=given("keep_best", lambda run, loss: loss if loss < run.progress.lowest - 1e-3 else math.inf)),
    Fault("fewer-samples-than-ranks", "Fewer samples than ranks raise an error.",
          where=always, caught_by=ENDS, cause="rank-raised", world_size=3,
          effect=TrainerEffect("run", _one_sample_each)),
    Fault("seed-and-epoch-past-32-bits", "A seed plus epoch of more than 32 bits raises an error.",
          where=always, caught_by=ENDS, cause="rank-raised", world_size=1,
          effect=given("order", _seeded)),
    Fault("adam-without-weight-decay", "Weight decay is passed to SGD only.",
          where=always, caught_by=ENDS, cause="run-without-weight-decay", world_size=1,
          effect=of_task(lambda task: task if task.optimizer.name == "sgd" else _without_decay(task))),
    Fault("nan-is-the-best", "A NaN loss counts as the best.",
          where=always, caught_by=BEST, cause="nan-counts-as-lowest", world_size=1,
          effect=in_place_of("keep_best", _with_nan)),
    Fault("epochs-in-the-order-of-the-third", "Every third epoch repeats the same order.",
          where=always, caught_by=USES, cause="epochs-counted-round", world_size=1,
          effect=given("order", lambda run, epoch: epoch % 3)),
)
# fmt: on


@trainer("frozen-layers-decay", ENDS, cause="frozen-layer-trained", world_size=1)
class FrozenLayersDecay(Trainer):
    """Weight decay also shrinks frozen layers."""

    def step(self) -> None:
        super().step()
        network, spec = self.replica._network, self.task.optimizer
        for name in network.parameters.keys() - set(network.learned):
            network.parameters[name] *= 1 - spec.lr * spec.weight_decay


@trainer("stretched-to-the-norm", ENDS, cause="run-scaled-up-to-norm", world_size=1)
class StretchedToTheNorm(Trainer):
    """Clipping also scales short gradients up to the limit."""

    factor = 1.0

    def update(self, window: Window) -> float:
        self.replica.zero_grad()
        losses = self.gather(window)
        if self.task.max_norm is not None:
            norm = self.replica.clip(self.task.max_norm)
            self.factor = max(1.0, self.task.max_norm / norm) if norm else 1.0
        self.step()
        return self.summed(losses, window)

    def step(self) -> None:
        self.replica.learning_rate = self.learning_rate() * self.factor  # equivalent without momentum
        self.replica.step()
        self.rates.append(self.learning_rate())
        self.progress = replace(self.progress, step=self.progress.step + 1)


@trainer("trained-initial-values", USES, cause="arguments-changed-by-run", world_size=1)
class TrainedInitialValues(Trainer):
    """Training changes the caller's initial values."""

    def run(self) -> TrainingRun:
        run = super().run()
        for name, array in self.task.initial.items():
            array[...] = run.parameters.get(name, array)
        return run


@trainer("ended-once-and-for-all", RESUMED, cause="epochs-skipped", world_size=1)
class EndedForAll(Trainer):
    """A finished run leaves a mark that stops later runs at once."""

    def run(self) -> TrainingRun:
        mark = None if self.task.folder is None else Path(self.task.folder, "ended")
        if self.task.resume and mark is not None and mark.exists():
            self.task = replace(self.task, epochs=int(mark.read_text()))
        run = super().run()
        if mark is not None and self.task.stop_after is None and self.engine.rank == 0:
            mark.write_text(str(self.task.epochs))
        return run


@trainer("last-of-equal-losses-is-best", BEST, cause="later-of-equal-best", world_size=1)
class LastOfEqualIsBest(Trainer):
    """An equal loss replaces the best weights."""

    def keep_best(self, loss: float) -> None:
        if self.task.keep_best and loss == self.progress.lowest:
            self.progress = replace(self.progress, lowest=math.inf)
        super().keep_best(loss)
