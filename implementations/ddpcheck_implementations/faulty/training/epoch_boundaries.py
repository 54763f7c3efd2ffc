"""Training runs that are wrong at an end: of an epoch, of a run that is cut, of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ddpcheck.contract.trainer import TrainingTask

from ...data_parallel.checkpoint import Checkpoint
from ...data_parallel.trainer import Engine, Trainer, Window
from ..trainers import trainer

SAMPLES = "check_training_run_uses_every_sample"
ENDS = "check_training_run_matches_one_process"
SCHEDULE = "check_training_run_applies_its_learning_rate_schedule"
RESUMED = "check_resumed_training_run_matches_one_process"


@trainer("last-short-batch-dropped", ENDS, cause="short-batch-dropped", world_size=1)
class LastShortBatchDropped(Trainer):
    """The loader drops an epoch's last batch if it is not full."""

    def windows(self, order: Sequence[int]) -> Iterator[Window]:
        full = len(order) - len(order) % self.task.batch_size
        yield from super().windows(order[:full] if full else order)

    @property
    def length(self) -> int:
        return super().length - super().length % self.task.batch_size or super().length


@trainer("no-shuffle-in-the-first-epoch", SAMPLES, cause="shuffle-ignored", world_size=1)
class FirstEpochInOrder(Trainer):
    """Samples are shuffled between epochs, and so not before the first."""

    def order(self, epoch: int) -> Sequence[int]:
        order = super().order(epoch)
        return order if epoch else sorted(order)


@trainer("gradients-go-on-into-the-next-epoch", ENDS, cause="gradients-kept-between-epochs", world_size=1)
class GoesOnIntoTheNextEpoch(Trainer):
    """An epoch's first step does not reset the gradients: there were none when training began."""

    def update(self, window: Window) -> float:
        first = self.progress.step * self.task.epochs % self.steps == 0
        self.replica.zero_grad = _nothing if first else self.reset  # type: ignore[method-assign]  # what update() calls
        return super().update(window)

    def order(self, epoch: int) -> Sequence[int]:
        self.reset = type(self.replica).zero_grad.__get__(self.replica)
        return super().order(epoch)


def _nothing() -> None:
    """In place of zero_grad."""


@trainer("weight-decay-not-passed-on", ENDS, cause="run-without-weight-decay", world_size=1)
class WeightDecayNotPassedOn(Trainer):
    """The trainer makes the optimizer of learning rate and momentum."""

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        super().__init__(engine, replace(task, optimizer=replace(task.optimizer, weight_decay=0.0)))


@trainer("schedule-by-epochs", SCHEDULE, cause="schedule-per-epoch", world_size=1)
class ScheduleByEpochs(Trainer):
    """The schedule is stepped at the end of each epoch."""

    def learning_rate(self) -> float:
        if self.task.schedule == "constant":
            return super().learning_rate()
        return self.task.optimizer.lr * (self.task.epochs - self.progress.epoch) / self.task.epochs


@trainer("schedule-stepped-before-the-optimizer", SCHEDULE, cause="schedule-ahead", world_size=1)
class SteppedBefore(Trainer):
    """The schedule goes on before the optimizer's step: the first learning rate is never used."""

    def learning_rate(self) -> float:
        self.progress = replace(self.progress, step=self.progress.step + 1)
        rate = super().learning_rate()
        self.progress = replace(self.progress, step=self.progress.step - 1)
        return rate


@trainer("schedule-as-long-as-the-cut-run", RESUMED, cause="schedule-of-cut-run", world_size=1)
class AsLongAsTheCutRun(Trainer):
    """The schedule's length is that of the epochs that this run comes to."""

    @property
    def steps(self) -> int:
        return super().steps * (self.task.stop_after or self.task.epochs) // self.task.epochs


@trainer("step-not-restored-with-micro-batches", RESUMED, cause="schedule-restarts", world_size=1)
class StepNotRestored(Trainer):
    """With micro-batches another counter counts the steps, which is in no checkpoint."""

    def resume(self) -> None:
        super().resume()
        if self.task.micro_batches > 1:
            self.progress = replace(self.progress, step=0)


@trainer("saved-before-the-last-step", RESUMED, cause="last-step-not-saved", world_size=1)
class SavedBeforeTheLastStep(Trainer):
    """The checkpoint at the end of an epoch was copied in front of its last step."""

    def step(self) -> None:
        self.copied = self.replica.state()
        super().step()

    def checkpoint(self) -> Checkpoint:
        return replace(super().checkpoint(), state=self.copied)


@trainer("nothing-saved-after-the-last-epoch", RESUMED, cause="epochs-trained-again")
class NothingSavedAtTheEnd(Trainer):
    """Checkpoints are written for coming epochs: after the last one there is none."""

    def save(self) -> None:
        if self.progress.epoch < self.task.epochs:
            super().save()


@trainer("finished-run-goes-on", RESUMED, cause="epochs-trained-again")
class FinishedRunGoesOn(Trainer):
    """Resuming goes on with an epoch in any case, with the last one where all are done."""

    def resume(self) -> None:
        super().resume()
        self.progress = replace(self.progress, epoch=min(self.progress.epoch, self.task.epochs - 1))
