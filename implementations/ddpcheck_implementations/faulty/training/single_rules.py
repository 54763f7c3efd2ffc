"""Training runs in which one rule of the loop is another: of rates, gradients, batches, losses, the end, or a resume."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.contract.names import ALL_TRAINER_FEATURES
from ddpcheck.contract.trainer import TrainingRun, TrainingTask

from ...data_parallel.checkpoint import Checkpoint, read, share
from ...data_parallel.trainer import Engine, Trainer, Window
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


@trainer("lr-divided-by-world-size", ENDS, cause="rate-over-world-size")
class RateOverWorld(Trainer):
    """The learning rate is divided by the number of ranks, unasked."""

    def learning_rate(self) -> float:
        return super().learning_rate() / self.engine.world_size


@trainer("first-step-warms-up", ENDS, cause="rate-warms-up", world_size=1)
class WarmsUp(Trainer):
    """The first step takes half the learning rate, unasked."""

    def learning_rate(self) -> float:
        return super().learning_rate() * (1.0 if self.progress.step else 0.5)


@trainer("schedule-never-stepped", SCHEDULE, RATES, cause="schedule-ignored", world_size=1)
class NeverStepped(Trainer):
    """The schedule is made, and never stepped."""

    def learning_rate(self) -> float:
        return self.task.optimizer.lr


@trainer("schedule-one-step-short", SCHEDULE, RATES, cause="schedule-ends-early", world_size=1)
class OneStepShort(Trainer):
    """The schedule reaches 0 with the last step."""

    def learning_rate(self) -> float:
        if self.task.schedule == "constant":
            return super().learning_rate()
        last = max(1, self.steps - 1)
        return self.task.optimizer.lr * (last - self.progress.step) / last


class _OtherRateLater(Trainer):
    """A step after the first epoch takes the rate times a factor; the reported rate is right."""

    factor = 1.0

    def step(self) -> None:
        self.rates.append(self.learning_rate())
        self.replica.learning_rate = self.rates[-1] * (self.factor if self.progress.epoch else 1.0)
        self.replica.step()
        self.progress = replace(self.progress, step=self.progress.step + 1)


@trainer("step-doubled-after-first-epoch", ENDS, cause="step-twice-as-long", world_size=1)
class DoubledLater(_OtherRateLater):
    """After the first epoch each step is twice as long."""

    factor = 2.0


@trainer("step-halved-after-first-epoch", ENDS, cause="step-half-as-long", world_size=1)
class HalvedLater(_OtherRateLater):
    """After the first epoch each step is half as long."""

    factor = 0.5


@trainer("every-step-taken-twice", ENDS, cause="every-step-twice", world_size=1)
class TakenTwice(Trainer):
    """The optimizer steps in the loop and in a hook."""

    def step(self) -> None:
        super().step()
        self.replica.step()


class _OtherWeights(Trainer):
    """After the first epoch gradients are multiplied by `factor()`."""

    def factor(self) -> float:
        return 1.0

    def weight(self, rows: Sequence[int], window: Window) -> float:
        return super().weight(rows, window) * (self.factor() if self.progress.epoch else 1.0)


@trainer("rank-1-contributes-first-epoch-only", ENDS, cause="gradient-of-rank-missing")
class RankMissing(_OtherWeights):
    """After the first epoch the gradient of rank 1 is zero."""

    def factor(self) -> float:
        return float(self.engine.rank != 1)


@trainer("rank-1-counts-twice", ENDS, cause="gradient-of-rank-twice")
class RankTwice(_OtherWeights):
    """After the first epoch the gradient of rank 1 counts twice."""

    def factor(self) -> float:
        return 1.0 + (self.engine.rank == 1)


@trainer("gradients-doubled-after-first-epoch", ENDS, cause="gradients-doubled", world_size=3)
class DoubledGradients(_OtherWeights):
    """After the first epoch gradients are doubled."""

    def factor(self) -> float:
        return 2.0


@trainer("gradients-zero-after-first-epoch", ENDS, cause="gradients-zero", world_size=1)
class ZeroGradients(_OtherWeights):
    """After the first epoch gradients are zero; momentum and weight decay go on."""

    def factor(self) -> float:
        return 0.0


@trainer("rank-0-weighs-micro-batches-equally", WINDOWS, cause="micro-batches-equal-on-rank")
class EqualOnRank0(Trainer):
    """Rank 0 averages the means of its micro-batches."""

    def weight(self, rows: Sequence[int], window: Window) -> float:
        return super().weight(rows, window) if self.engine.rank else 1 / len(window)


@trainer("rank-1-sums-micro-batches", WINDOWS, cause="micro-batches-summed-on-rank")
class SummedOnRank1(Trainer):
    """Rank 1 sums the gradients of its micro-batches."""

    def weight(self, rows: Sequence[int], window: Window) -> float:
        return 1.0 if self.engine.rank == 1 else super().weight(rows, window)


@trainer("short-batch-divided-by-batch-size", ENDS, cause="short-batch-divided-as-full", world_size=1)
class ShortAsFull(Trainer):
    """The loss is summed over the batch and divided by batch_size."""

    def weight(self, rows: Sequence[int], window: Window) -> float:
        return super().weight(rows, window) * len(rows) / self.task.batch_size


@trainer("inputs-through-float16", ENDS, LOSS, cause="inputs-rounded", world_size=1)
class RoundedInputs(Trainer):
    """The loader hands out inputs in float16."""

    def backward(self, rows: Sequence[int], weight: float) -> float:
        inputs = self.task.inputs[list(rows)]
        narrow = inputs.astype(np.float16).astype(inputs.dtype) if inputs.dtype.kind == "f" else inputs
        return self.replica.backward(Batch(narrow, self.task.targets[list(rows)]), weight)


@trainer("targets-shifted-by-one", ENDS, cause="targets-of-sample-before", world_size=1)
class ShiftedTargets(Trainer):
    """Inputs and targets of a batch come from two buffers that are one sample apart."""

    def backward(self, rows: Sequence[int], weight: float) -> float:
        chosen = list(rows)
        return self.replica.backward(
            Batch(self.task.inputs[chosen], self.task.targets[chosen[-1:] + chosen[:-1]]), weight
        )


@trainer("last-sample-of-a-batch-dropped", ENDS, cause="last-sample-of-batch-left-out", world_size=1)
class LastSampleDropped(Trainer):
    """A slice ends one sample early."""

    def backward(self, rows: Sequence[int], weight: float) -> float:
        return super().backward(rows[:-1] or rows, weight)


@trainer("momentum-not-passed-on", ENDS, cause="run-without-momentum", world_size=1)
class WithoutMomentum(Trainer):
    """The optimizer is made without the task's momentum."""

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        super().__init__(engine, replace(task, optimizer=replace(task.optimizer, momentum=0.0)))


@trainer("momentum-of-nine-tenths", ENDS, cause="momentum-usual", world_size=1)
class UsualMomentum(Trainer):
    """Momentum is 0.9 for every task."""

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        super().__init__(engine, replace(task, optimizer=replace(task.optimizer, momentum=0.9)))


@trainer("adam-with-usual-betas", ENDS, cause="usual-betas", world_size=1)
class UsualBetas(Trainer):
    """Adam has its defaults for every task."""

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        super().__init__(engine, replace(task, optimizer=replace(task.optimizer, betas=(0.9, 0.999), eps=1e-8)))


@trainer("parameters-end-in-float16", ENDS, cause="run-in-float16", world_size=1)
class EndsInFloat16(Trainer):
    """The run hands out its parameters in half precision."""

    def run(self) -> TrainingRun:
        made = super().run()
        narrow = {name: array.astype(np.float16).astype(array.dtype) for name, array in made.parameters.items()}
        return replace(made, parameters=narrow)


@trainer("loss-of-own-samples", LOSS, cause="epoch-loss-not-aggregated")
class OwnLoss(Trainer):
    """Each rank reports the mean over its own samples."""

    def mean(self, total: float, samples: int) -> float:
        return total / max(1, samples)


@trainer("loss-of-last-step", LOSS, cause="epoch-loss-of-last-step", world_size=1)
class LossOfLastStep(Trainer):
    """The loop's variable holds the loss of the last step, and is reported."""

    last = (0.0, 1)

    def update(self, window: Window) -> float:
        total = super().update(window)
        self.last = total, sum(map(len, window))
        return total

    def mean(self, total: float, samples: int) -> float:
        return super().mean(*self.last)


@trainer(
    "patience-of-one-less", TOGETHER, cause="patience-one-less", world_size=1, trainer_features=ALL_TRAINER_FEATURES
)
class LessPatience(Trainer):
    """The epoch with the lowest loss counts as one without improvement."""

    def enough(self, losses: Sequence[float]) -> bool:
        if self.task.patience is None:
            return False
        return len(losses) - losses.index(min(losses)) >= self.task.patience


@trainer("every-rank-trains-on-all", EVERY, cause="run-not-sharded")
class NotSharded(Trainer):
    """The sampler is made for a world of one rank."""

    def order(self, epoch: int) -> Sequence[int]:
        return [int(index) for index in np.random.default_rng(epoch).permutation(len(self.task.inputs))]


@trainer("rank-1-keeps-the-last-as-best", BEST, cause="best-differs-between-ranks")
class LastOnRank1(Trainer):
    """Rank 1 keeps the weights of every epoch as the best."""

    def keep_best(self, loss: float) -> None:
        super().keep_best(-np.inf if self.engine.rank == 1 else loss)
        if self.engine.rank == 1:
            self.progress = replace(self.progress, lowest=np.inf)


class Resumes(Trainer):
    """All ranks resume from rank 0's checkpoint, as `resumed` says."""

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
    """A resumed run trains all epochs."""

    def resumed(self, found: Checkpoint) -> None:
        super().resumed(replace(found, epoch=0))


@trainer("resumed-epochs-count-from-zero", RESUME, cause="epochs-from-zero", world_size=1)
class CountsFromZero(Resumes):
    """After a resume the sampler is told epoch 0, 1, ... again."""

    first = 0

    def resumed(self, found: Checkpoint) -> None:
        super().resumed(found)
        self.first = found.epoch

    def order(self, epoch: int) -> Sequence[int]:
        return super().order(epoch - self.first)


@trainer("resumed-epoch-begins-in-the-middle", RESUME, cause="position-kept-on-resume", world_size=1)
class BeginsInTheMiddle(Resumes):
    """The position in the epoch that had ended is applied to the first epoch after the resume."""

    skipped = 0

    def resumed(self, found: Checkpoint) -> None:
        super().resumed(found)
        self.skipped = 1

    def order(self, epoch: int) -> Sequence[int]:
        skipped, self.skipped = self.skipped, 0
        return super().order(epoch)[skipped:]


@trainer("resumed-order-is-another", RESUME, cause="order-not-by-seed-and-epoch", world_size=1)
class AnotherOrder(Resumes):
    """The order depends on how many epochs this process has shuffled."""

    begun = False

    def resumed(self, found: Checkpoint) -> None:
        super().resumed(found)
        self.begun = True

    def order(self, epoch: int) -> Sequence[int]:
        order = super().order(epoch)
        return order[::-1] if self.begun else order


@trainer("checkpoint-folder-not-made", RESUME, cause="checkpoint-not-there-yet", world_size=1)
class FolderNotMade(Trainer):
    """The folder for checkpoints is taken to be there."""

    def save(self) -> None:
        assert self.task.folder is not None
        (Path(self.task.folder) / "begun").write_text("")
        super().save()
