"""Training runs with a learning rate that differs from the schedule, or that is reported wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...data_parallel.trainer import Trainer, Window
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.trainers import after, in_place_of, result, scheduled
from ..trainers import trainer

ENDS = "check_training_run_matches_one_process"
RATES = "check_training_run_reports_its_learning_rates"
SCHEDULE = "check_training_run_applies_its_learning_rate_schedule"

_ACCELERATE = ("huggingface/accelerate#2926", "huggingface/transformers#24088", "huggingface/diffusers#3954")


def _stepped_by_all(run: Any) -> float:
    left = max(0.0, 1 - run.world * run.progress.step / run.steps)
    return float(run.task.optimizer.lr * left)


def _by_samples(run: Any) -> float:
    each, size = run.steps // run.task.epochs, run.task.batch_size * run.task.micro_batches
    epoch, step = divmod(run.progress.step, each)
    used = epoch * run.length + min(run.length, step * size)
    return float(run.task.optimizer.lr * (1 - used / (run.task.epochs * run.length)))


def _read_late(run: Trainer) -> None:
    run.rates[-1] = run.learning_rate()


# fmt: off
table(
    globals(),
    Fault("lr-times-world-size", "The learning rate is multiplied by the world size.",
          where=always, caught_by=(ENDS, SCHEDULE), cause="rate-times-world-size",
          effect=result("learning_rate", lambda run, rate: rate * run.world)),
    Fault("lr-stepped-world-times", "The schedule advances once per rank in every step.",
          where=scheduled, caught_by=(SCHEDULE, RATES), cause="schedule-per-rank",
          effect=in_place_of("learning_rate", _stepped_by_all), seen_in=_ACCELERATE),
    Fault("lr-length-before-sharding",
          "The schedule's length is that of the whole data set, so the rate never reaches its end.",
          where=always, caught_by=(SCHEDULE, RATES), cause="schedule-of-whole-data",
          effect=result("steps", lambda run, steps: steps * run.world), seen_in=_ACCELERATE),
    Fault("lr-by-samples", "The schedule follows the share of samples used, so a short last batch changes the rates.",
          where=scheduled, caught_by=SCHEDULE, cause="schedule-by-samples", world_size=1,
          effect=in_place_of("learning_rate", _by_samples)),
    Fault("lr-in-float32", "The learning rate is rounded to float32.",
          where=always, caught_by=ENDS, cause="rate-rounded",
          effect=result("learning_rate", lambda run, rate: float(np.float32(rate)))),
    Fault("reported-lr-of-next-step", "The reported learning rate is that of the next step.",
          where=always, caught_by=RATES, cause="rate-read-late", world_size=1,
          effect=after("step", _read_late)),
    Fault("tells-no-learning-rates", "Correct without the promise: no learning rates are reported.",
          where=always,  # correct, but unusual
          effect=result("run", lambda run, made: replace(made, learning_rates=None))),
)
# fmt: on


@trainer("lr-set-after-the-step", SCHEDULE, cause="schedule-behind", world_size=1)
class RateStale(Trainer):
    """Each step uses the learning rate of the previous one."""

    def step(self) -> None:
        self.rates.append(self.learning_rate())
        self.replica.step()
        self.replica.learning_rate = self.rates[-1]
        self.progress = replace(self.progress, step=self.progress.step + 1)


@trainer("lr-of-the-last-epoch", SCHEDULE, cause="rate-of-step-before", world_size=1)
class RateOfTheLastEpoch(Trainer):
    """The first step of an epoch uses the last learning rate of the previous epoch."""

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


class UnevenShards(Trainer):
    """Shards are not padded and differ by one sample; a rank without samples joins with an empty batch."""

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
    """Ranks are weighted by their samples in the window, so all samples have equal weight."""

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
    """Ranks are weighted by their samples, although equal weights are promised."""


# ------------------------------------------------------------------------------------------------- correct, but unusual


@trainer("weighs-uneven-shards", remainder="uneven", uneven_batches="weighted")
class CorrectlyWeighsShards(WeighsShards):
    """Correct if promised: on uneven shards, all samples have equal weight."""


@trainer("trains-on-uneven-shards", remainder="uneven")
class CorrectOnUnevenShards(UnevenShards):
    """Correct if promised: shards may differ in length."""
