"""Training runs that are wrong where two features meet: a checkpoint and clipping, the best weights and micro-batches, a
schedule and weight decay, ids and a loop for numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ddpcheck.trainer import TrainingTask
from ddpcheck.values import Array

from ...data_parallel.trainer import Engine, Trainer, Window
from ..trainers import trainer
from .ends import ENDS
from .resuming import BEST, RESUMED


@trainer("not-clipped-after-resume", "classic", RESUMED, words="gradients are no longer clipped", world_size=1)
class NotClippedAfterResume(Trainer):
    """The largest norm is an option of a run that begins."""

    def resume(self) -> None:
        super().resume()
        if self.progress.epoch:
            self.task = replace(self.task, max_norm=None)


@trainer("best-not-with-micro-batches", "classic", BEST, words="of epoch 4, the last, though", world_size=1)
class BestNotWithMicroBatches(Trainer):
    """The loop that accumulates is another one, and does not look for the best weights."""

    def keep_best(self, loss: float) -> None:
        if self.task.micro_batches == 1:
            super().keep_best(loss)


@trainer(
    "weight-decay-not-scheduled",
    "classic",
    "check_run_with_a_schedule_ends_where_one_process_ends",
    words="at the learning rate that the run began with",
    world_size=1,
)
class DecayNotScheduled(Trainer):
    """Weight decay is applied by itself, at the learning rate that the run began with."""

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


@trainer("frozen-layers-not-saved", "classic", RESUMED, words="not in the checkpoint")
class FrozenNotSaved(Trainer):
    """The checkpoint holds what learns; for the rest every rank has its own initial values."""

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        super().__init__(engine, task)
        self.initial: Mapping[str, Array] = {name: np.array(array) for name, array in task.initial.items()}

    def resume(self) -> None:
        super().resume()
        network = self.replica._network
        for name in network.parameters.keys() - set(network.learned) if self.progress.epoch else ():
            network.parameters[name][...] = self.initial[name]


@trainer("ids-as-floats", "classic", ENDS, words="must be of integer", world_size=1)
class IdsAsFloats(Trainer):
    """Data are numbers of the model's dtype."""

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        super().__init__(engine, replace(task, inputs=task.inputs.astype(task.model.dtype)))
