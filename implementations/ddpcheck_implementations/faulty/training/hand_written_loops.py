"""Training runs as they are written by hand: a loader of one buffer, a schedule that ends too early, a loss in few bits, best
weights that are no copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.seeded_values import Array

from ...data_parallel.trainer import Trainer, Window
from ..trainers import trainer
from .resuming import BEST
from .schedules import ENDS, SCHEDULE
from .training import LOSS


@trainer("loader-fills-its-buffer-again", ENDS, cause="buffer-refilled", world_size=1)
class OneBuffer(Trainer):
    """The thread that loads is two full batches ahead, and has one buffer for the inputs of all."""

    def windows(self, order: Sequence[int]) -> list[Window]:  # type: ignore[override]  # all at once
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


@trainer("schedule-falls-below-zero", SCHEDULE, cause="schedule-below-zero", world_size=1)
class BelowZero(Trainer):
    """The schedule's length is rounded down, and nothing keeps it from going on behind its end."""

    @property
    def steps(self) -> int:
        return self.task.epochs * max(1, self.length // (self.task.batch_size * self.task.micro_batches))


@trainer("loss-told-in-float16", LOSS, cause="epoch-loss-in-float16", world_size=1)
class LossInFloat16(Trainer):
    """The loss of an epoch lies with the activations, in half precision."""

    def mean(self, total: float, samples: int) -> float:
        return float(np.float16(super().mean(total, samples)))


@trainer("best-weights-by-reference", BEST, cause="best-not-copied", world_size=1)
class ByReference(Trainer):
    """The best weights are no copy: they go on learning."""

    def best(self) -> Mapping[str, Array] | None:
        return self.replica.parameters() if self.task.keep_best else None
