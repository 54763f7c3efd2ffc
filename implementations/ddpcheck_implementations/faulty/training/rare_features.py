"""Training runs that are wrong with two things together: an optimizer and micro-batches, a seed and an epoch, few samples, NaN
and the best weights; or after the run had ended.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ddpcheck.contract.trainer import TrainingRun, TrainingTask

from ...data_parallel.trainer import Engine, Trainer, Window
from ..trainers import trainer
from .epoch_boundaries import ENDS
from .resuming import BEST, RESUMED

USES = "check_training_run_uses_every_sample"
ACCUMULATED = "check_training_run_with_accumulation_matches_one_process"


@trainer("weight-decay-not-with-micro-batches", ACCUMULATED, cause="run-without-weight-decay", world_size=1)
class NoDecayWithMicroBatches(Trainer):
    """The optimizer that takes micro-batches is made without weight decay."""

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        decay = task.optimizer.weight_decay if task.micro_batches == 1 else 0.0
        super().__init__(engine, replace(task, optimizer=replace(task.optimizer, weight_decay=decay)))


@trainer("adam-not-clipped", ACCUMULATED, cause="run-not-clipped", world_size=1)
class AdamNotClipped(Trainer):
    """Adam hides the scale of its gradients: they are not clipped."""

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        super().__init__(engine, replace(task, max_norm=None) if task.optimizer.name == "adam" else task)


@trainer("best-by-a-thousandth", BEST, cause="small-gain-ignored", world_size=1)
class BestByAThousandth(Trainer):
    """A loss is better only if it is so by more than early stopping asks for."""

    def keep_best(self, loss: float) -> None:
        if loss < self.progress.lowest - 1e-3:
            super().keep_best(loss)


@trainer("fewer-samples-than-ranks", ENDS, cause="rank-raised", world_size=3)
class OneSampleEach(Trainer):
    """Every rank has a sample of its own."""

    def run(self) -> TrainingRun:
        self.task.inputs[self.engine.rank]
        return super().run()


@trainer("seed-and-epoch-past-32-bits", ENDS, cause="rank-raised", world_size=1)
class SeedPastBits(Trainer):
    """Seed and epoch are added, and the sum is too large for a generator that takes any seed of the program."""

    def order(self, epoch: int) -> Sequence[int]:
        np.random.RandomState(self.task.seed + epoch)
        return super().order(epoch)


@trainer("adam-without-weight-decay", ENDS, cause="run-without-weight-decay", world_size=1)
class AdamWithoutDecay(Trainer):
    """Weight decay is passed on to SGD only."""

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        decay = task.optimizer.weight_decay if task.optimizer.name == "sgd" else 0.0
        super().__init__(engine, replace(task, optimizer=replace(task.optimizer, weight_decay=decay)))


@trainer("frozen-layers-decay", ENDS, cause="frozen-layer-trained", world_size=1)
class FrozenLayersDecay(Trainer):
    """Weight decay is applied by itself, to all parameters that there are."""

    def step(self) -> None:
        super().step()
        network, spec = self.replica._network, self.task.optimizer
        for name in network.parameters.keys() - set(network.learned):
            network.parameters[name] *= 1 - spec.lr * spec.weight_decay


@trainer("stretched-to-the-norm", ENDS, cause="run-scaled-up-to-norm", world_size=1)
class StretchedToTheNorm(Trainer):
    """Gradients get the largest norm, those that are shorter, too."""

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
        self.replica.learning_rate = self.learning_rate() * self.factor  # as good, without momentum
        self.replica.step()
        self.rates.append(self.learning_rate())
        self.progress = replace(self.progress, step=self.progress.step + 1)


@trainer("trained-initial-values", USES, cause="arguments-changed-by-run", world_size=1)
class TrainedInitialValues(Trainer):
    """The parameters are the arrays that the run was given."""

    def run(self) -> TrainingRun:
        run = super().run()
        for name, array in self.task.initial.items():
            array[...] = run.parameters.get(name, array)
        return run


@trainer("nan-is-the-best", BEST, cause="nan-counts-as-lowest", world_size=1)
class NaNIsBest(Trainer):
    """An epoch of equal loss counts as better."""

    def keep_best(self, loss: float) -> None:
        if not loss >= self.progress.lowest:
            self.progress = replace(self.progress, lowest=loss, best=self.replica.parameters())


@trainer("ended-once-and-for-all", RESUMED, cause="epochs-skipped", world_size=1)
class EndedForAll(Trainer):
    """A run that came to its end has left a mark, and has no epochs more."""

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
    """An epoch that is as good as the best takes its place."""

    def keep_best(self, loss: float) -> None:
        if self.task.keep_best and loss == self.progress.lowest:
            self.progress = replace(self.progress, lowest=math.inf)
        super().keep_best(loss)


@trainer("epochs-in-the-order-of-the-third", USES, cause="epochs-counted-round", world_size=1)
class OrdersOfThree(Trainer):
    """Three orders are drawn ahead, and used round."""

    def order(self, epoch: int) -> Sequence[int]:
        return super().order(epoch % 3)
