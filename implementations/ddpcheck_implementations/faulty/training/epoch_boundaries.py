"""Training runs that are wrong at the end of an epoch, of an interrupted run, or of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...data_parallel.checkpoint import Checkpoint
from ...data_parallel.trainer import Trainer, Window
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.trainers import (
    accumulating,
    after,
    at_the_end,
    in_place_of,
    later,
    left_out,
    of_optimizer,
    progressed,
    result,
    scheduled,
    set_progress,
)
from ..trainers import trainer

SAMPLES = "check_training_run_uses_every_sample"
ENDS = "check_training_run_matches_one_process"
SCHEDULE = "check_training_run_applies_its_learning_rate_schedule"
RESUMED = "check_resumed_training_run_matches_one_process"

# fmt: off
table(
    globals(),
    Fault("no-shuffle-in-the-first-epoch", "The first epoch is not shuffled.",
          where=~later, caught_by=SAMPLES, cause="shuffle-ignored", world_size=1,
          effect=result("order", lambda run, order: sorted(order))),
    Fault("weight-decay-not-passed-on", "The optimizer is created without weight decay.",
          where=always, caught_by=ENDS, cause="run-without-weight-decay", world_size=1,
          effect=of_optimizer(weight_decay=0.0)),
    Fault("schedule-by-epochs", "The learning rate changes once per epoch instead of once per step.",
          where=scheduled, caught_by=SCHEDULE, cause="schedule-per-epoch", world_size=1,
          effect=in_place_of("learning_rate", lambda run: run.task.optimizer.lr * (1 - run.progress.epoch / run.task.epochs))),
    Fault("schedule-as-long-as-the-cut-run",
          "An interrupted run computes its schedule for the epochs up to the interruption.",
          where=always, caught_by=RESUMED, cause="schedule-of-cut-run", world_size=1,
          effect=result("steps", lambda run, steps: steps * (run.task.stop_after or run.task.epochs) // run.task.epochs)),
    Fault("step-not-restored-with-micro-batches", "With accumulation, a resumed run restarts the step count.",
          where=accumulating, caught_by=RESUMED, cause="schedule-restarts",
          effect=progressed("resume", step=0), world_size=1),
    Fault("nothing-saved-after-the-last-epoch", "No checkpoint is written after the last epoch.",
          where=at_the_end, caught_by=RESUMED, cause="epochs-trained-again",
          effect=left_out("save")),
    Fault("finished-run-goes-on", "A finished run that resumes trains the last epoch again.",
          where=always, caught_by=RESUMED, cause="epochs-trained-again",
          effect=after("resume", lambda run: set_progress(run, epoch=min(run.progress.epoch, run.task.epochs - 1)))),
)
# fmt: on


@trainer("last-short-batch-dropped", ENDS, cause="short-batch-dropped", world_size=1)
class LastShortBatchDropped(Trainer):
    """The last batch of an epoch is dropped if it is not full."""

    def windows(self, order: Sequence[int]) -> Iterator[Window]:
        full = len(order) - len(order) % self.task.batch_size
        yield from super().windows(order[:full] if full else order)

    @property
    def length(self) -> int:
        return super().length - super().length % self.task.batch_size or super().length


@trainer("gradients-go-on-into-the-next-epoch", ENDS, cause="gradients-kept-between-epochs", world_size=1)
class GoesOnIntoTheNextEpoch(Trainer):
    """An epoch's first step includes the gradients of the previous epoch's last step."""

    def update(self, window: Window) -> float:
        first = self.progress.step * self.task.epochs % self.steps == 0
        self.replica.zero_grad = _nothing if first else self.reset  # type: ignore[method-assign]  # update() calls it
        return super().update(window)

    def order(self, epoch: int) -> Sequence[int]:
        self.reset = type(self.replica).zero_grad.__get__(self.replica)
        return super().order(epoch)


def _nothing() -> None:
    """Replaces zero_grad()."""


@trainer("schedule-stepped-before-the-optimizer", SCHEDULE, cause="schedule-ahead", world_size=1)
class SteppedBefore(Trainer):
    """The schedule advances before the optimizer's step, so the first learning rate is never used."""

    def learning_rate(self) -> float:
        self.progress = replace(self.progress, step=self.progress.step + 1)
        rate = super().learning_rate()
        self.progress = replace(self.progress, step=self.progress.step - 1)
        return rate


@trainer("saved-before-the-last-step", RESUMED, cause="last-step-not-saved", world_size=1)
class SavedBeforeTheLastStep(Trainer):
    """The checkpoint of an epoch is copied before the epoch's last step."""

    def step(self) -> None:
        self.copied = self.replica.state()
        super().step()

    def checkpoint(self) -> Checkpoint:
        return replace(super().checkpoint(), state=self.copied)
