"""Training runs that report wrong losses or indices, keep wrong best weights, or lose state when they resume."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...data_parallel.checkpoint import Checkpoint
from ...data_parallel.trainer import Trainer, Window
from ...numpy_network import Network
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.trainers import result
from ..trainers import trainer
from .single_rules import BEST, ENDS, LOSS, RESUME, SCHEDULE, Resumes

# fmt: off
table(
    globals(),
    Fault("indices-within-the-shard-reported",
          "Reported indices are positions in the rank's shard, not in the data set.",
          where=always, caught_by=ENDS, cause="reported-indices-wrong",
          effect=result("run", lambda run, made: replace(made, indices=[[*range(len(each))] for each in made.indices]))),
)
# fmt: on


@trainer("loss-as-mean-of-batches", LOSS, cause="epoch-loss-of-batches", world_size=1)
class MeanOfBatches(Trainer):
    """The reported loss averages batches with equal weights, whatever their sizes."""

    def summed(self, losses: Sequence[float], window: Window) -> float:
        return sum(losses)

    def mean(self, total: float, samples: int) -> float:
        return super().mean(total, -(-samples // self.task.batch_size))


@trainer("loss-of-an-evaluation", LOSS, cause="epoch-loss-of-evaluation", world_size=1)
class EvaluatedLoss(Trainer):
    """The reported loss of an epoch is computed with the parameters at its end."""

    def mean(self, total: float, samples: int) -> float:
        chosen = list(self.order(self.progress.epoch))
        network = Network(self.task.model, self.replica.parameters() | self.replica.buffers())
        if chosen:
            loss = network.backward(
                self.task.inputs[chosen], self.task.targets[chosen], (), lambda name, gradient: None
            )
            total = loss * len(chosen)
        return super().mean(total, samples)


@trainer("loss-divided-by-samples", LOSS, cause="epoch-loss-divided-by-samples", world_size=1)
class MeansOverSamples(Trainer):
    """The reported loss adds the mean losses of batches, and divides by the number of samples."""

    def summed(self, losses: Sequence[float], window: Window) -> float:
        return sum(losses)


@trainer("loss-of-own-last-step", LOSS, cause="epoch-loss-own-last-step")
class OwnLastStep(Trainer):
    """Each rank reports its own loss in the last step of an epoch."""

    last = 0.0

    def update(self, window: Window) -> float:
        total = super().update(window)
        self.last = total / max(1, sum(map(len, window)))
        return total

    def mean(self, total: float, samples: int) -> float:
        return self.last


@trainer("best-by-the-loss-of-rank-0", BEST, cause="best-by-own-loss")
class BestByRank0(Trainer):
    """Rank 0's own loss decides which epoch is best."""

    own = 0.0

    def mean(self, total: float, samples: int) -> float:
        self.own = float(self.engine.collectives.broadcast(np.array(total / max(1, samples))))
        return super().mean(total, samples)

    def keep_best(self, loss: float) -> None:
        super().keep_best(self.own)


@trainer("epoch-ends-with-the-next-rate", SCHEDULE, cause="rate-of-next-step", world_size=1)
class NextRate(Trainer):
    """The last step of an epoch uses the next step's learning rate, but reports the right one."""

    def step(self) -> None:
        self.rates.append(self.learning_rate())
        self.progress = replace(self.progress, step=self.progress.step + 1)
        ends = not self.progress.step * self.task.epochs % self.steps
        self.replica.learning_rate = self.learning_rate() if ends else self.rates[-1]
        self.replica.step()


@trainer("checkpointed-run-sets-rates-late", RESUME, cause="schedule-behind-after-resume", world_size=1)
class RatesLate(Trainer):
    """With checkpoints, each step uses the learning rate of the previous one."""

    def step(self) -> None:
        if self.task.folder is None:
            super().step()
            return
        self.rates.append(self.learning_rate())
        self.replica.step()
        self.replica.learning_rate = self.rates[-1]
        self.progress = replace(self.progress, step=self.progress.step + 1)


@trainer("optimizer-and-schedule-not-loaded", RESUME, cause="resume-loses-optimizer-and-schedule", world_size=1)
class ParametersOnly(Resumes):
    """A resumed run restores parameters and epoch, but neither optimizer nor schedule."""

    def resumed(self, found: Checkpoint) -> None:
        state = {name: array for name, array in found.state.items() if not name.startswith("optimizer.")}
        super().resumed(replace(found, state=state, step=0))


@trainer("nothing-loaded-but-the-epoch", RESUME, cause="resume-loads-epoch-only", world_size=1)
class EpochOnly(Resumes):
    """A resumed run restores the epoch and nothing else."""

    def resumed(self, found: Checkpoint) -> None:
        self.progress = replace(found, step=0)
