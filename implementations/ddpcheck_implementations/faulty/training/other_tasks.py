"""Training runs that ignore part of the task, report wrong losses, or leave out a rank or a sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.contract.trainer import TrainingTask

from ...data_parallel.trainer import Engine, Trainer, Window
from ..engine.circumstances import always, on_rank
from ..engine.fault import Fault, table
from ..engine.trainers import TrainerEffect, of_task, result
from ..trainers import trainer
from .resuming import BEST, RESUMED
from .schedules import ENDS, SCHEDULE
from .training import LOSS, SAMPLES, WINDOWS, WINDOWS_LOSS

# fmt: off
table(
    globals(),
    Fault("seed-of-the-task-ignored", "The run ignores the requested seed.",
          where=always, caught_by=SAMPLES, cause="seed-ignored", world_size=1,
          effect=of_task(lambda task: replace(task, seed=0))),
    Fault("trainer-shuffles-unasked", "Data are shuffled, although shuffle=False was requested.",
          where=always, caught_by=SAMPLES, cause="shuffled-unasked", world_size=1,
          effect=of_task(lambda task: replace(task, shuffle=True))),
    Fault("best-in-place-of-the-last", "The run returns the best weights as the final ones.",
          where=always, caught_by=BEST, cause="ends-with-epoch", world_size=1,
          effect=result("run", lambda run, made: replace(made, parameters=made.best or made.parameters))),
    Fault("loss-without-the-third-rank", "The reported loss lacks rank 2.",
          where=on_rank(2), caught_by=LOSS, cause="epoch-loss-without-rank",
          effect=TrainerEffect("mean", lambda run, right, total, samples: right(total, 0)),
          world_size=3),
    Fault("norm-times-micro-batches", "The clipping limit is multiplied by the number of micro-batches.",
          where=always, caught_by=WINDOWS, cause="max-norm-times-micro-batches",
          effect=of_task(lambda task: replace(task, max_norm=task.max_norm and task.max_norm * task.micro_batches)),
          world_size=1),
)
# fmt: on


@trainer("short-window-is-no-step", SCHEDULE, cause="schedule-skips-short-batches", world_size=1)
class ShortWindowIsNoStep(Trainer):
    """The schedule does not count the step of a short accumulation window."""

    def update(self, window: Window) -> float:
        before, total = self.progress.step, super().update(window)
        if len(window) < self.task.micro_batches:
            self.progress = replace(self.progress, step=before)
        return total


@trainer("schedule-of-full-windows", SCHEDULE, cause="schedule-without-short-batches", world_size=1)
class LengthOfFullWindows(Trainer):
    """The schedule's length counts full accumulation windows only, so it ends too early."""

    @property
    def steps(self) -> int:
        batches = -(-self.length // self.task.batch_size)
        return self.task.epochs * max(1, batches // self.task.micro_batches)

    def learning_rate(self) -> float:
        return max(0.0, super().learning_rate())


@trainer("schedule-over-the-rest", RESUMED, cause="schedule-over-rest", world_size=1)
class ScheduleOverTheRest(Trainer):
    """A resumed run computes a new schedule for the remaining steps."""

    gone = 0

    def resume(self) -> None:
        super().resume()
        self.gone = self.progress.step

    def learning_rate(self) -> float:
        if self.task.schedule == "constant":
            return super().learning_rate()
        return self.task.optimizer.lr * (self.steps - self.progress.step) / (self.steps - self.gone)


@trainer("loss-without-short-windows", WINDOWS_LOSS, cause="epoch-loss-without-short-window")
class LossOfFullWindows(Trainer):
    """The reported loss lacks short accumulation windows."""

    left_out = 0

    def order(self, epoch: int) -> Sequence[int]:
        self.left_out = 0
        return super().order(epoch)

    def update(self, window: Window) -> float:
        total = super().update(window)
        if len(window) == self.task.micro_batches:
            return total
        self.left_out += sum(map(len, window))
        return 0.0

    def mean(self, total: float, samples: int) -> float:
        return super().mean(total, max(1, samples - self.left_out))


@trainer("loss-of-all-epochs-so-far", LOSS, cause="epoch-loss-of-all-epochs", world_size=1)
class LossSoFar(Trainer):
    """The reported loss is the mean over all epochs so far."""

    total, samples = 0.0, 0

    def mean(self, total: float, samples: int) -> float:
        self.total += total
        self.samples += samples
        return super().mean(self.total, self.samples)


@trainer("single-sample-left-out", ENDS, cause="single-sample-batch-ignored", world_size=1)
class SingleSampleLeftOut(Trainer):
    """A batch of one sample is skipped."""

    def backward(self, rows: Sequence[int], weight: float) -> float:
        if len(rows) != 1 or self.task.batch_size == 1:
            return super().backward(rows, weight)
        return self.replica.backward(Batch(self.task.inputs[:0], self.task.targets[:0]), weight)


@trainer("optimizer-anew-each-epoch", ENDS, cause="optimizer-per-epoch", world_size=1)
class OptimizerAnew(Trainer):
    """Each epoch creates a new optimizer."""

    def order(self, epoch: int) -> Sequence[int]:
        state = self.replica.state()
        anew = {name: np.zeros_like(value) for name, value in state.items() if name.startswith("optimizer")}
        self.replica.load_state({**state, **anew})
        return super().order(epoch)


@trainer("batch-size-of-all-ranks", ENDS, cause="batch-size-of-all-ranks")
class BatchSizeOfAll(Trainer):
    """The batch size is divided by the world size."""

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        super().__init__(engine, replace(task, batch_size=max(1, task.batch_size // engine.world_size)))


@trainer("third-rank-not-loaded", RESUMED, cause="resume-loses-parameters", world_size=3)
class ThirdRankNotLoaded(Trainer):
    """A resumed run sends the loaded state to rank 1 only."""

    def resume(self) -> None:
        built = self.replica.parameters()
        super().resume()
        if self.engine.rank == 2 and self.progress.epoch:
            for name, parameter in self.replica._network.parameters.items():
                parameter[...] = built[name]
