"""Training runs that are wrong for some kinds of data, optimizer or loss."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ddpcheck.contract.allowed_names import ALL_TRAINER_FEATURES as FEATURES
from ddpcheck.contract.trainer import TrainingRun, TrainingTask

from ...data_parallel.checkpoint import Checkpoint
from ...data_parallel.trainer import Trainer
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.trainers import keeping_best, of_task, patient, result
from .early_stopping import TOGETHER as EARLY
from .epoch_boundaries import ENDS
from .resuming import BEST, EXACT


def _clipped_by_default(task: TrainingTask) -> TrainingTask:
    return replace(task, max_norm=1.0) if task.inputs.dtype.kind == "i" and task.max_norm is None else task


def _moments_in_float32(run: Trainer, made: Checkpoint) -> Checkpoint:
    kept = {
        name: array.astype(np.float32).astype(array.dtype) if ".first." in name or ".second." in name else array
        for name, array in made.state.items()
    }
    return replace(made, state=kept)


def _one_rate_an_epoch(run: Trainer, made: TrainingRun) -> TrainingRun:
    return replace(made, learning_rates=run.rates[:: len(run.rates) // len(made.losses)])


# fmt: off
table(
    globals(),
    Fault("ids-clipped-by-default", "Runs on ids clip at norm 1, although no clipping was requested.",
          where=always, caught_by=ENDS, cause="run-clipped-unasked", world_size=1,
          effect=of_task(_clipped_by_default)),
    Fault("moments-of-adam-saved-in-float32", "Checkpoints hold Adam's moments in float32.",
          where=always, caught_by=EXACT, cause="fewer-bits", world_size=1,
          effect=result("checkpoint", _moments_in_float32)),
    Fault("best-loaded-after-a-large-loss",
          "A run whose last loss is large returns the best weights instead of the last ones.",
          where=keeping_best, caught_by=BEST, cause="ends-with-epoch", world_size=1,
          effect=result("run", lambda run, made: replace(made, parameters=made.best) if made.losses[-1] > 1000 else made)),
    Fault("one-rate-an-epoch-with-patience",
          "With patience, one learning rate per epoch is reported instead of one per step.",
          where=patient, caught_by=EARLY, cause="rates-by-epoch", world_size=1,
          effect=result("run", _one_rate_an_epoch),
          trainer_features=FEATURES),
)
# fmt: on
