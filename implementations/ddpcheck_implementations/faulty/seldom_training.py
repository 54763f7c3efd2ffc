"""Training runs that are wrong with two things together: an optimizer and micro-batches, a seed and an epoch, few samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ddpcheck.adapter import TrainingRun, TrainingTask

from ..data_parallel.trainer import Engine, Trainer
from .ends import ENDS
from .resuming import BEST
from .trainers import trainer

ACCUMULATED = "check_run_with_accumulation_ends_where_one_process_ends"


@trainer("weight-decay-not-with-micro-batches", "classic", ACCUMULATED, words="weight decay is missing", world_size=1)
class NoDecayWithMicroBatches(Trainer):
    """The optimizer that takes micro-batches is made without weight decay."""

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        decay = task.optimizer.weight_decay if task.micro_batches == 1 else 0.0
        super().__init__(engine, replace(task, optimizer=replace(task.optimizer, weight_decay=decay)))


@trainer("adam-not-clipped", "classic", ACCUMULATED, words="after the training run", world_size=1)
class AdamNotClipped(Trainer):
    """Adam hides the scale of its gradients: they are not clipped."""

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        super().__init__(engine, replace(task, max_norm=None) if task.optimizer.name == "adam" else task)


@trainer("best-by-a-thousandth", "classic", BEST, words="all ranks hold the parameters of epoch 0", world_size=1)
class BestByAThousandth(Trainer):
    """A loss is better only if it is so by more than early stopping asks for."""

    def keep_best(self, loss: float) -> None:
        if loss < self.progress.lowest - 1e-3:
            super().keep_best(loss)


@trainer("fewer-samples-than-ranks", "classic", ENDS, words="IndexError", world_size=3)
class OneSampleEach(Trainer):
    """Every rank has a sample of its own."""

    def run(self) -> TrainingRun:
        self.task.inputs[self.engine.rank]
        return super().run()


@trainer("seed-and-epoch-past-32-bits", "classic", ENDS, words="between 0 and 2**32 - 1", world_size=1)
class SeedPastBits(Trainer):
    """Seed and epoch are added, and the sum is too large for a generator that takes any seed of the program."""

    def order(self, epoch: int) -> Sequence[int]:
        np.random.RandomState(self.task.seed + epoch)
        return super().order(epoch)
