"""Mistakes of hand-written training loops: one shared buffer, a short schedule, a rounded loss, uncopied best weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddpcheck.contract.adapter import Batch

from ...data_parallel.trainer import Trainer, Window
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.trainers import in_place_of, keeping_best, result
from ..trainers import trainer
from .resuming import BEST
from .schedules import ENDS, SCHEDULE
from .training import LOSS


def _full_steps(run: Trainer) -> int:
    return run.task.epochs * max(1, run.length // (run.task.batch_size * run.task.micro_batches))


# fmt: off
table(
    globals(),
    Fault("schedule-falls-below-zero", "The schedule is too short, so the learning rate becomes negative.",
          where=always, caught_by=SCHEDULE, cause="schedule-below-zero", world_size=1,
          effect=in_place_of("steps", _full_steps)),
    Fault("loss-told-in-float16", "The reported loss of an epoch is rounded to float16.",
          where=always, caught_by=LOSS, cause="epoch-loss-in-float16", world_size=1,
          effect=result("mean", lambda run, loss: float(np.float16(loss)))),
    Fault("best-weights-by-reference", "The best weights are not copied and change with further training.",
          where=keeping_best, caught_by=BEST, cause="best-not-copied", world_size=1,
          effect=in_place_of("best", lambda run: run.replica.parameters())),
)
# fmt: on


@trainer("loader-fills-its-buffer-again", ENDS, cause="buffer-refilled", world_size=1)
class OneBuffer(Trainer):
    """The loader reuses one input buffer for two batches that are in use."""

    def windows(self, order: Sequence[int]) -> list[Window]:  # type: ignore[override]  # a list
        windows = list(super().windows(order))
        self.full = [list(rows) for window in windows for rows in window if len(rows) == self.task.batch_size]
        self.at = 0
        return windows

    def backward(self, rows: Sequence[int], weight: float) -> float:
        chosen = list(rows)
        seen = chosen
        if len(chosen) == self.task.batch_size:
            seen = self.full[min(self.at + 2, len(self.full) - 1)]
            self.at += 1
        return self.replica.backward(Batch(self.task.inputs[seen], self.task.targets[chosen]), weight)
