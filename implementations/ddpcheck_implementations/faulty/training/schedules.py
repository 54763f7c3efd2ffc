"""Training runs whose learning rate is not that of the schedule, or is told wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ddpcheck.contract.trainer import TrainingRun

from ...data_parallel.trainer import Trainer, Window
from ..trainers import trainer

ENDS = "check_training_run_matches_one_process"
RATES = "check_training_run_reports_its_learning_rates"
SCHEDULE = "check_training_run_applies_its_learning_rate_schedule"


@trainer("lr-times-world-size", ENDS, SCHEDULE, cause="rate-times-world-size")
class RateTimesWorld(Trainer):
    """The learning rate is scaled by the number of ranks, unasked."""

    def learning_rate(self) -> float:
        return super().learning_rate() * self.engine.world_size


@trainer(
    "lr-stepped-world-times",
    SCHEDULE,
    RATES,
    seen_in=("huggingface/accelerate#2926", "huggingface/transformers#24088", "huggingface/diffusers#3954"),
    cause="schedule-per-rank",
)
class SteppedWorldTimes(Trainer):
    """The schedule is stepped by every rank: it ends when 1/W of the steps are done."""

    def learning_rate(self) -> float:
        if self.task.schedule == "constant":
            return super().learning_rate()
        gone = self.engine.world_size * self.progress.step
        return self.task.optimizer.lr * max(0.0, (self.steps - gone) / self.steps)


@trainer(
    "lr-length-before-sharding",
    SCHEDULE,
    RATES,
    seen_in=("huggingface/accelerate#2926", "huggingface/transformers#24088", "huggingface/diffusers#3954"),
    cause="schedule-of-whole-data",
)
class LengthBeforeSharding(Trainer):
    """The schedule is as long as if one rank had all the data: it never comes to its end."""

    @property
    def steps(self) -> int:
        return super().steps * self.engine.world_size


@trainer("lr-set-after-the-step", SCHEDULE, cause="schedule-behind", world_size=1)
class RateStale(Trainer):
    """The schedule sets the learning rate when the step has been taken: each takes that of the one before."""

    def step(self) -> None:
        self.rates.append(self.learning_rate())
        self.replica.step()
        self.replica.learning_rate = self.rates[-1]
        self.progress = replace(self.progress, step=self.progress.step + 1)


@trainer("lr-of-the-last-epoch", SCHEDULE, cause="rate-of-step-before", world_size=1)
class RateOfTheLastEpoch(Trainer):
    """An epoch begins with the learning rate that the last one ended with."""

    ended = -1

    def step(self) -> None:
        rate, self.replica.learning_rate = self.replica.learning_rate, self.learning_rate()
        self.rates.append(self.replica.learning_rate)
        if self.progress.epoch > max(0, self.ended):
            self.replica.learning_rate = rate
        self.ended = self.progress.epoch
        self.replica.step()
        self.replica.learning_rate = self.rates[-1]
        self.progress = replace(self.progress, step=self.progress.step + 1)


@trainer("reported-lr-of-next-step", RATES, cause="rate-read-late", world_size=1)
class RateOfNextStep(Trainer):
    """The learning rate is read when the schedule has gone on to the next step."""

    def step(self) -> None:
        super().step()
        self.rates[-1] = self.learning_rate()


class UnevenShards(Trainer):
    """Nothing is padded: shards differ by one sample, and a rank that has no more takes part with an empty batch."""

    def order(self, epoch: int) -> Sequence[int]:
        order = super().order(epoch)
        missing = -len(self.task.inputs) % self.engine.world_size
        return order[: len(order) - (self.engine.rank >= self.engine.world_size - missing)]


@trainer(
    "lr-depends-on-local-progress",
    SCHEDULE,
    RATES,
    seen_in=("karpathy/nanochat#857",),
    cause="rate-by-own-samples",
    remainder="uneven",
)
class LocalProgress(UnevenShards):
    """The learning rate follows the share of its own samples that a rank has used."""

    used = 0

    def learning_rate(self) -> float:
        if self.task.schedule == "constant":
            return super().learning_rate()
        mine = self.task.epochs * len(self.order(0))
        return self.task.optimizer.lr * (mine - self.used) / mine

    def update(self, window: Window) -> float:
        total = super().update(window)
        self.used += sum(map(len, window))
        return total


class WeighsShards(UnevenShards):
    """A rank counts by its samples in the window: each sample of all ranks weighs the same."""

    share = 0.0

    def update(self, window: Window) -> float:
        samples = np.array([float(sum(map(len, window)))])
        self.share = self.engine.world_size / float(self.engine.collectives.all_reduce(samples)[0])
        return super().update(window)

    def weight(self, rows: Sequence[int], window: Window) -> float:
        return len(rows) * self.share


@trainer(
    "shards-weighted-unasked",
    SCHEDULE,
    "check_training_run_with_accumulation_matches_one_process",
    cause="ranks-weighed-by-size",
    remainder="uneven",
)
class WeighsShardsUnasked(WeighsShards):
    """Ranks count by their samples, though they are promised to weigh equally."""


# ------------------------------------------------------------------------------------------------- correct, but unusual


@trainer("weighs-uneven-shards", remainder="uneven", uneven_batches="weighted")
class CorrectlyWeighsShards(WeighsShards):
    """Correct, on shards that differ in length, of which each sample weighs the same."""


@trainer("trains-on-uneven-shards", remainder="uneven")
class CorrectOnUnevenShards(UnevenShards):
    """Correct, on shards that differ in length."""


@trainer("tells-no-learning-rates")
class TellsNoRates(Trainer):
    """Correct, and tells no learning rates."""

    def run(self) -> TrainingRun:
        return replace(super().run(), learning_rates=None)
