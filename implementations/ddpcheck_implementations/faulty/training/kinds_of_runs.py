"""Training runs that are wrong for some kind of data, optimizer or loss, and right for those that are tried first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ddpcheck.contract.names import ALL_TRAINER_FEATURES as FEATURES
from ddpcheck.contract.trainer import TrainingRun, TrainingTask

from ...data_parallel.checkpoint import Checkpoint
from ...data_parallel.trainer import Engine, Trainer
from ..trainers import trainer
from .early_stopping import TOGETHER as EARLY
from .epoch_boundaries import ENDS
from .resuming import BEST, EXACT


@trainer("ids-clipped-by-default", ENDS, cause="run-clipped-unasked", world_size=1)
class IdsClippedByDefault(Trainer):
    """The loop for text has a largest norm of its own, where the task has none."""

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        text = task.inputs.dtype.kind == "i" and task.max_norm is None
        super().__init__(engine, replace(task, max_norm=1.0) if text else task)


@trainer("moments-of-adam-saved-in-float32", EXACT, cause="fewer-bits", world_size=1)
class MomentsSavedInFloat32(Trainer):
    """To keep files small, what Adam has gathered is saved with fewer digits."""

    def checkpoint(self) -> Checkpoint:
        made = super().checkpoint()
        kept = {
            name: array.astype(np.float32).astype(array.dtype) if ".first." in name or ".second." in name else array
            for name, array in made.state.items()
        }
        return replace(made, state=kept)


@trainer(
    "best-loaded-after-a-large-loss",
    BEST,
    cause="ends-with-epoch",
    world_size=1,
)
class BestAfterLargeLoss(Trainer):
    """A run that seems to have diverged ends with the weights of its best epoch."""

    def run(self) -> TrainingRun:
        run = super().run()
        return replace(run, parameters=run.best) if run.best and run.losses[-1] > 1000 else run


@trainer(
    "one-rate-an-epoch-with-patience",
    EARLY,
    cause="rates-by-epoch",
    world_size=1,
    trainer_features=FEATURES,
)
class OneRateAnEpoch(Trainer):
    """What watches for an early end notes the learning rate, too, once in an epoch."""

    def run(self) -> TrainingRun:
        run = super().run()
        each = len(self.rates) // len(run.losses)
        return replace(run, learning_rates=self.rates[::each]) if self.task.patience else run
