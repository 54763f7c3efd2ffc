"""Training runs that are wrong only if two features are combined."""

from __future__ import annotations

import numpy as np

from ...data_parallel.trainer import Trainer
from ..trainers import trainer

MUCH = "check_training_runs_with_many_features_match_one_process"


@trainer("schedule-of-text-goes-by-epochs", MUCH, cause="schedule-per-epoch", world_size=1)
class ScheduleOfTextByEpochs(Trainer):
    """For runs on text, the learning rate changes once per epoch instead of once per step."""

    def learning_rate(self) -> float:
        rate = super().learning_rate()
        if self.task.inputs.dtype.kind != "i" or self.task.schedule != "linear":
            return rate
        each = self.steps // self.task.epochs
        return self.task.optimizer.lr * (self.steps - self.progress.step // each * each) / self.steps


@trainer("adam-decays-frozen-layers", MUCH, cause="frozen-layer-trained", world_size=1)
class AdamDecaysFrozenLayers(Trainer):
    """Adam applies its own weight decay of 0.01 to frozen layers."""

    def step(self) -> None:
        super().step()
        network = self.replica._network
        if self.task.optimizer.name == "adam":
            for name in {*network.parameters} - {*network.learned}:
                frozen = network.parameters[name]
                frozen *= np.asarray(1 - 0.01 * self.rates[-1], frozen.dtype)
