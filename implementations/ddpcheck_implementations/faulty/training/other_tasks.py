"""Training runs that follow another task than theirs: another seed, batch size, norm or schedule, a new optimizer each
epoch; that tell other losses, or leave a rank or a single sample out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.contract.trainer import TrainingRun, TrainingTask

from ...data_parallel.trainer import Engine, Trainer, Window
from ..trainers import trainer
from .resuming import BEST, RESUMED
from .schedules import ENDS, SCHEDULE
from .training import LOSS, SAMPLES, WINDOWS, WINDOWS_LOSS


@trainer("seed-of-the-task-ignored", SAMPLES, cause="seed-ignored", world_size=1)
class SeedIgnored(Trainer):
    """The sampler has the usual seed."""

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        super().__init__(engine, replace(task, seed=0))


@trainer("trainer-shuffles-unasked", SAMPLES, cause="shuffled-unasked", world_size=1)
class ShufflesUnasked(Trainer):
    """Training data are always shuffled."""

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        super().__init__(engine, replace(task, shuffle=True))


@trainer("best-in-place-of-the-last", BEST, cause="ends-with-epoch", world_size=1)
class BestInPlaceOfLast(Trainer):
    """At the end the best weights are loaded, and told as those at the end."""

    def run(self) -> TrainingRun:
        run = super().run()
        return replace(run, parameters=run.best) if run.best else run


@trainer("short-window-is-no-step", SCHEDULE, cause="schedule-skips-short-batches", world_size=1)
class ShortWindowIsNoStep(Trainer):
    """The schedule counts full windows."""

    def update(self, window: Window) -> float:
        before, total = self.progress.step, super().update(window)
        if len(window) < self.task.micro_batches:
            self.progress = replace(self.progress, step=before)
        return total


@trainer("schedule-of-full-windows", SCHEDULE, cause="schedule-without-short-batches", world_size=1)
class LengthOfFullWindows(Trainer):
    """The schedule's length is rounded down to full windows, and ends too early."""

    @property
    def steps(self) -> int:
        batches = -(-self.length // self.task.batch_size)
        return self.task.epochs * max(1, batches // self.task.micro_batches)

    def learning_rate(self) -> float:
        return max(0.0, super().learning_rate())


@trainer("schedule-over-the-rest", RESUMED, cause="schedule-over-rest", world_size=1)
class ScheduleOverTheRest(Trainer):
    """A run that goes on makes a schedule for the steps that it has still to do."""

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
    """The loss is logged where a full window ends."""

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
    """The meter of the loss is made once."""

    total, samples = 0.0, 0

    def mean(self, total: float, samples: int) -> float:
        self.total += total
        self.samples += samples
        return super().mean(self.total, self.samples)


@trainer("loss-without-the-third-rank", LOSS, cause="epoch-loss-without-rank", world_size=3)
class LossOfTwoRanks(Trainer):
    """Losses are gathered from two ranks."""

    def mean(self, total: float, samples: int) -> float:
        return super().mean(total, samples if self.engine.rank < 2 else 0)


@trainer("single-sample-left-out", ENDS, cause="single-sample-batch-ignored", world_size=1)
class SingleSampleLeftOut(Trainer):
    """A batch of one sample has no variance to normalise by, and is left out."""

    def backward(self, rows: Sequence[int], weight: float) -> float:
        if len(rows) != 1 or self.task.batch_size == 1:
            return super().backward(rows, weight)
        return self.replica.backward(Batch(self.task.inputs[:0], self.task.targets[:0]), weight)


@trainer("optimizer-anew-each-epoch", ENDS, cause="optimizer-per-epoch", world_size=1)
class OptimizerAnew(Trainer):
    """The optimizer is made inside the loop over the epochs."""

    def order(self, epoch: int) -> Sequence[int]:
        state = self.replica.state()
        anew = {name: np.zeros_like(value) for name, value in state.items() if name.startswith("optimizer")}
        self.replica.load_state({**state, **anew})
        return super().order(epoch)


@trainer("batch-size-of-all-ranks", ENDS, cause="batch-size-of-all-ranks")
class BatchSizeOfAll(Trainer):
    """The batch size is shared out between the ranks."""

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        super().__init__(engine, replace(task, batch_size=max(1, task.batch_size // engine.world_size)))


@trainer("norm-times-micro-batches", WINDOWS, cause="max-norm-times-micro-batches", world_size=1)
class NormTimesMicroBatches(Trainer):
    """The largest norm allows for gradients that are added up, which are averaged here."""

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        norm = (task.max_norm or math.inf) * task.micro_batches
        super().__init__(engine, replace(task, max_norm=norm if task.max_norm is not None else None))


@trainer("third-rank-not-loaded", RESUMED, cause="resume-loses-parameters", world_size=3)
class ThirdRankNotLoaded(Trainer):
    """The loaded state is sent to one other rank; the third keeps its initial values."""

    def resume(self) -> None:
        built = self.replica.parameters()
        super().resume()
        if self.engine.rank == 2 and self.progress.epoch:
            for name, parameter in self.replica._network.parameters.items():
                parameter[...] = built[name]
