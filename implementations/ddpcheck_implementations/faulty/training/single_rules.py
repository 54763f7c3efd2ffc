"""Training runs with one wrong rule for rates, gradients, batches, losses, early stopping or resuming."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.contract.allowed_names import ALL_TRAINER_FEATURES
from ddpcheck.contract.trainer import TrainingRun

from ...data_parallel.checkpoint import Checkpoint, read, share
from ...data_parallel.trainer import Trainer, Window
from ..engine.circumstances import always, on_rank
from ..engine.fault import Fault, table
from ..engine.trainers import TrainerEffect, after, given, in_place_of, later, of_optimizer, patient, result, scheduled
from ..trainers import trainer

ENDS = "check_training_run_matches_one_process"
EVERY = "check_training_run_uses_every_sample"
LOSS = "check_training_run_reports_loss_over_all_samples"
RATES = "check_training_run_reports_its_learning_rates"
SCHEDULE = "check_training_run_applies_its_learning_rate_schedule"
WINDOWS = "check_training_run_with_accumulation_matches_one_process"
RESUME = "check_resumed_training_run_matches_one_process"
TOGETHER = "check_early_stopping_ends_all_ranks_together"
BEST = "check_best_weights_have_the_lowest_global_loss"


def _short_schedule(run: Trainer) -> float:
    last = max(1, run.steps - 1)
    return run.task.optimizer.lr * (last - run.progress.step) / last


def _by_batch_size(run: Trainer, right: Callable[..., float], rows: Sequence[int], window: Window) -> float:
    return right(rows, window) * len(rows) / run.task.batch_size


def _everything(run: Trainer, epoch: int) -> Sequence[int]:
    found: list[int] = np.random.default_rng(epoch).permutation(len(run.task.inputs)).tolist()
    return found


def _in_float16(run: Trainer, made: TrainingRun) -> TrainingRun:
    narrow = {name: array.astype(np.float16).astype(array.dtype) for name, array in made.parameters.items()}
    return replace(made, parameters=narrow)


_WEIGHT = partial(result, "weight")
_RATE = partial(result, "learning_rate")

# fmt: off
table(
    globals(),
    Fault("lr-divided-by-world-size", "The learning rate is divided by the world size.",
          where=always, caught_by=ENDS, cause="rate-over-world-size",
          effect=_RATE(lambda run, rate: rate / run.world)),
    Fault("first-step-warms-up", "The first step uses half the learning rate.",
          where=always, caught_by=ENDS, cause="rate-warms-up", world_size=1,
          effect=_RATE(lambda run, rate: rate if run.progress.step else rate / 2)),
    Fault("schedule-never-stepped", "The schedule is ignored.",
          where=always, caught_by=(SCHEDULE, RATES), cause="schedule-ignored", world_size=1,
          effect=_RATE(lambda run, rate: run.task.optimizer.lr)),
    Fault("schedule-one-step-short", "The learning rate reaches 0 one step too early.",
          where=scheduled, caught_by=(SCHEDULE, RATES), cause="schedule-ends-early",
          world_size=1, effect=in_place_of("learning_rate", _short_schedule)),
    Fault("every-step-taken-twice", "The optimizer steps twice with each gradient.",
          where=always, caught_by=ENDS, cause="every-step-twice", world_size=1,
          effect=after("step", lambda run: run.replica.step())),
    Fault("rank-1-contributes-first-epoch-only", "After the first epoch, rank 1's gradient is 0.",
          where=later & on_rank(1), caught_by=ENDS,
          cause="gradient-of-rank-missing", effect=_WEIGHT(lambda run, weight: 0.0)),
    Fault("rank-1-counts-twice", "After the first epoch, rank 1's gradient counts twice.",
          where=later & on_rank(1), caught_by=ENDS, cause="gradient-of-rank-twice",
          effect=_WEIGHT(lambda run, weight: 2 * weight)),
    Fault("gradients-doubled-after-first-epoch", "After the first epoch, gradients are doubled.",
          where=later, caught_by=ENDS, cause="gradients-doubled", world_size=3,
          effect=_WEIGHT(lambda run, weight: 2 * weight)),
    Fault("gradients-zero-after-first-epoch", "After the first epoch, gradients are 0.",
          where=later, caught_by=ENDS, cause="gradients-zero", world_size=1,
          effect=_WEIGHT(lambda run, weight: 0.0)),
    Fault("rank-0-weighs-micro-batches-equally", "Rank 0 weighs micro-batches equally, whatever their sizes.",
          where=on_rank(0), caught_by=WINDOWS,
          cause="micro-batches-equal-on-rank",
          effect=in_place_of("weight", lambda run, rows, window: 1 / len(window))),
    Fault("rank-1-sums-micro-batches", "Rank 1 sums micro-batches instead of averaging them.",
          where=on_rank(1), caught_by=WINDOWS, cause="micro-batches-summed-on-rank",
          effect=_WEIGHT(lambda run, weight: 1.0)),
    Fault("short-batch-divided-by-batch-size", "The loss of a short batch is divided by the full batch size.",
          where=always, caught_by=ENDS, cause="short-batch-divided-as-full",
          effect=TrainerEffect("weight", _by_batch_size),
          world_size=1),
    Fault("last-sample-of-a-batch-dropped", "The last sample of each batch is dropped.",
          where=always, caught_by=ENDS, cause="last-sample-of-batch-left-out",
          effect=given("backward", lambda run, rows: rows[:-1] or rows), world_size=1),
    Fault("momentum-not-passed-on", "The optimizer is created without momentum.",
          where=always, caught_by=ENDS, cause="run-without-momentum", world_size=1,
          effect=of_optimizer(momentum=0.0)),
    Fault("momentum-of-nine-tenths", "Momentum is always 0.9.",
          where=always, caught_by=ENDS, cause="momentum-usual", world_size=1,
          effect=of_optimizer(momentum=0.9)),
    Fault("adam-with-usual-betas", "Adam always uses its default betas and eps.",
          where=always, caught_by=ENDS, cause="usual-betas", world_size=1,
          effect=of_optimizer(betas=(0.9, 0.999), eps=1e-8)),
    Fault("parameters-end-in-float16", "Final parameters are rounded to float16.",
          where=always, caught_by=ENDS, cause="run-in-float16", world_size=1,
          effect=result("run", _in_float16)),
    Fault("loss-of-own-samples", "Each rank reports the loss of its own samples.",
          where=always, caught_by=LOSS, cause="epoch-loss-not-aggregated",
          effect=in_place_of("mean", lambda run, total, samples: total / max(1, samples))),
    Fault("patience-of-one-less", "Training stops one epoch earlier than the patience asks.",
          where=patient, caught_by=TOGETHER, cause="patience-one-less", world_size=1,
          effect=in_place_of("enough", lambda run, losses: len(losses) - losses.index(min(losses)) >= run.task.patience),
          trainer_features=ALL_TRAINER_FEATURES),
    Fault("every-rank-trains-on-all", "Every rank trains on all samples.",
          where=always, caught_by=EVERY, cause="run-not-sharded",
          effect=in_place_of("order", _everything)),
)
# fmt: on


class _OtherRateLater(Trainer):
    """After the first epoch, steps multiply the learning rate by a factor; the reported rate is right."""

    factor = 1.0

    def step(self) -> None:
        self.rates.append(self.learning_rate())
        self.replica.learning_rate = self.rates[-1] * (self.factor if self.progress.epoch else 1.0)
        self.replica.step()
        self.progress = replace(self.progress, step=self.progress.step + 1)


@trainer("step-doubled-after-first-epoch", ENDS, cause="step-twice-as-long", world_size=1)
class DoubledLater(_OtherRateLater):
    """After the first epoch, each step is twice as long."""

    factor = 2.0


@trainer("step-halved-after-first-epoch", ENDS, cause="step-half-as-long", world_size=1)
class HalvedLater(_OtherRateLater):
    """After the first epoch, each step is half as long."""

    factor = 0.5


@trainer("inputs-through-float16", ENDS, LOSS, cause="inputs-rounded", world_size=1)
class RoundedInputs(Trainer):
    """Inputs are rounded to float16."""

    def backward(self, rows: Sequence[int], weight: float) -> float:
        inputs = self.task.inputs[list(rows)]
        narrow = inputs.astype(np.float16).astype(inputs.dtype) if inputs.dtype.kind == "f" else inputs
        return self.replica.backward(Batch(narrow, self.task.targets[list(rows)]), weight)


@trainer("targets-shifted-by-one", ENDS, cause="targets-of-sample-before", world_size=1)
class ShiftedTargets(Trainer):
    """Each input has the target of the previous sample."""

    def backward(self, rows: Sequence[int], weight: float) -> float:
        chosen = list(rows)
        return self.replica.backward(
            Batch(self.task.inputs[chosen], self.task.targets[chosen[-1:] + chosen[:-1]]), weight
        )


@trainer("loss-of-last-step", LOSS, cause="epoch-loss-of-last-step", world_size=1)
class LossOfLastStep(Trainer):
    """The reported loss of an epoch is that of its last step."""

    last = (0.0, 1)

    def update(self, window: Window) -> float:
        total = super().update(window)
        self.last = total, sum(map(len, window))
        return total

    def mean(self, total: float, samples: int) -> float:
        return super().mean(*self.last)


@trainer("rank-1-keeps-the-last-as-best", BEST, cause="best-differs-between-ranks")
class LastOnRank1(Trainer):
    """Rank 1 keeps the last weights as the best."""

    def keep_best(self, loss: float) -> None:
        super().keep_best(-np.inf if self.engine.rank == 1 else loss)
        if self.engine.rank == 1:
            self.progress = replace(self.progress, lowest=np.inf)


class Resumes(Trainer):
    """All ranks read rank 0's checkpoint and call resumed() with it."""

    def resumed(self, found: Checkpoint) -> None:
        self.replica.load_state(found.state)
        self.progress = found

    def resume(self) -> None:
        assert self.task.folder is not None
        found = share(self.engine.collectives, read(Path(self.task.folder)) if self.engine.rank == 0 else None)
        if found is not None:
            self.resumed(found)


@trainer("epoch-number-not-loaded", RESUME, cause="epoch-not-restored", world_size=1)
class EpochNotLoaded(Resumes):
    """A resumed run trains all epochs again."""

    def resumed(self, found: Checkpoint) -> None:
        super().resumed(replace(found, epoch=0))


@trainer("resumed-epochs-count-from-zero", RESUME, cause="epochs-from-zero", world_size=1)
class CountsFromZero(Resumes):
    """A resumed run calls set_epoch() with 0, 1 and so on again."""

    first = 0

    def resumed(self, found: Checkpoint) -> None:
        super().resumed(found)
        self.first = found.epoch

    def order(self, epoch: int) -> Sequence[int]:
        return super().order(epoch - self.first)


@trainer("resumed-epoch-begins-in-the-middle", RESUME, cause="position-kept-on-resume", world_size=1)
class BeginsInTheMiddle(Resumes):
    """A resumed run skips samples of its first epoch."""

    skipped = 0

    def resumed(self, found: Checkpoint) -> None:
        super().resumed(found)
        self.skipped = 1

    def order(self, epoch: int) -> Sequence[int]:
        skipped, self.skipped = self.skipped, 0
        return super().order(epoch)[skipped:]


@trainer("resumed-order-is-another", RESUME, cause="order-not-by-seed-and-epoch", world_size=1)
class AnotherOrder(Resumes):
    """The order of samples depends on the number of epochs that this process has shuffled."""

    begun = False

    def resumed(self, found: Checkpoint) -> None:
        super().resumed(found)
        self.begun = True

    def order(self, epoch: int) -> Sequence[int]:
        order = super().order(epoch)
        return order[::-1] if self.begun else order


@trainer("checkpoint-folder-not-made", RESUME, cause="checkpoint-not-there-yet", world_size=1)
class FolderNotMade(Trainer):
    """A missing checkpoint folder raises an error."""

    def save(self) -> None:
        assert self.task.folder is not None
        (Path(self.task.folder) / "begun").write_text("")
        super().save()
