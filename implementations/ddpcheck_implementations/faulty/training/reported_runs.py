"""Training runs, metrics and scores with mistakes from issue trackers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from ddpcheck.contract.trainer import TrainingRun
from ddpcheck.seeded_values import Array

from ...data_parallel.trainer import Trainer, Window
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.trainers import in_place_of, result
from ..facet_seams import metrics, scores
from ..metrics.metrics import WEIGHTED, right_means
from ..metrics.score_samples import ONCE
from ..metrics.scores import TWICE, right_score
from ..trainers import trainer
from .resuming import BEST
from .schedules import SCHEDULE
from .training import LOSS, WINDOWS


def _taken_apart(run: Trainer, windows: Iterator[Window]) -> Iterator[Window]:
    *full, last = windows
    yield from full
    yield from ([rows] for rows in last)


# fmt: off
table(
    globals(),
    Fault("schedule-as-long-as-batches",
          "With accumulation, the schedule's length counts micro-batches instead of steps.",
          where=always, caught_by=SCHEDULE, cause="schedule-length-in-micro-batches",
          effect=in_place_of("steps", lambda run: run.task.epochs * -(-run.length // run.task.batch_size)),
          seen_in=("axolotl-ai-cloud/axolotl#1170",), world_size=1),
    Fault("last-window-taken-apart",
          "At the end of an epoch, every micro-batch of the last window is a step of its own.",
          where=always, caught_by=WINDOWS, cause="last-window-split",
          effect=result("windows", _taken_apart),
          seen_in=("huggingface/accelerate#1847",)),
)
# fmt: on


@trainer(
    "first-micro-batch-synchronised",
    WINDOWS,
    seen_in=("modelscope/FunASR#3472",),
    cause="first-micro-batch-synchronised",
)
class FirstSynchronised(Trainer):
    """The first micro-batch of a window is synchronised instead of the last."""

    def gather(self, window: Window) -> list[float]:
        losses = []
        for number, rows in enumerate(window):
            with self.replica.no_sync() if number else nullcontext():
                losses.append(self.backward(rows, self.weight(rows, window)))
        return losses


@trainer(
    "last-epoch-best-on-rank-0-only",
    BEST,
    seen_in=("LibreYOLO/libreyolo#782",),
    cause="run-ended-by-some-ranks",
)
class BestOnRankZero(Trainer):
    """Only rank 0 knows the best epoch. If this is the last one, rank 0 leaves out the barrier at the end."""

    best_epoch = -1

    def keep_best(self, loss: float) -> None:
        before = self.progress.lowest
        super().keep_best(loss)
        if self.engine.rank == 0 and self.progress.lowest < before:
            self.best_epoch = self.progress.epoch

    def run(self) -> TrainingRun:
        done = super().run()
        if self.task.keep_best and self.best_epoch != self.progress.epoch:
            self.engine.collectives.barrier()
        return done


@trainer(
    "micro-batches-counted-over-epochs",
    WINDOWS,
    seen_in=("huggingface/transformers#33673",),
    cause="micro-batches-counted-on",
    world_size=1,
)
class CountedOverEpochs(Trainer):
    """Accumulation windows are counted across epochs."""

    seen = 0

    def windows(self, order: Sequence[int]) -> Iterator[Window]:
        window: list[Sequence[int]] = []
        for start in range(0, self.length, self.task.batch_size):
            window.append(order[start : start + self.task.batch_size])
            self.seen += 1
            if self.seen % self.task.micro_batches == 0:
                yield window
                window = []
        if window:
            yield window


class _Summing(Trainer):
    """Keeps sums of losses and samples, and reduces them at the end of an epoch. A fault overrides update()."""

    sums: Array = np.zeros(2)

    def order(self, epoch: int) -> Sequence[int]:
        self.sums = np.zeros(2)
        return super().order(epoch)

    def mean(self, total: float, samples: int) -> float:
        losses, count = self.engine.collectives.all_reduce(self.sums).tolist()
        return float(losses / count) if count else 0.0


@trainer(
    "sums-of-losses-as-buffers",
    LOSS,
    seen_in=("Lightning-AI/pytorch-lightning#3728",),
    cause="epoch-loss-overwritten",
)
class SumsAsBuffers(_Summing):
    """The sum of losses is a module buffer, which each forward pass replaces with rank 0's."""

    def update(self, window: Window) -> float:
        self.sums = np.array(self.engine.collectives.broadcast(self.sums))
        total = super().update(window)
        self.sums += np.array([total, sum(map(len, window))])
        return total


@trainer(
    "sums-of-losses-summed-again",
    LOSS,
    seen_in=("facebookresearch/fairchem#75",),
    cause="epoch-loss-sums-reduced-again",
)
class SumsSummedAgain(_Summing):
    """The running sum of losses is summed over ranks in every step."""

    def update(self, window: Window) -> float:
        total = super().update(window)
        self.sums += np.array([total, sum(map(len, window))])
        self.sums = np.array(self.engine.collectives.all_reduce(self.sums))
        return total


@metrics(
    "metric-mean-of-counts-is-an-integer",
    WEIGHTED,
    seen_in=("Lightning-AI/pytorch-lightning#21838",),
    cause="counts-averaged-as-integers",
)
def integer_counts(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Sums and counts are averaged over ranks first, and the mean count is truncated to an integer."""
    size = comm.world_size
    counts = int(comm.all_reduce(np.array(count))) // size
    sums = {name: float(comm.all_reduce(np.array(value * count if count else 0.0))) for name, value in metrics.items()}
    return {name: total / size / counts if counts else float("nan") for name, total in sums.items()}


@metrics(
    "metric-times-world-size",
    WEIGHTED,
    seen_in=("Liquid4All/liquid-finetune#38",),
    cause="mean-times-world-size",
)
def times_world_size(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """A correction by the world size, made for losses divided by the tokens of all ranks, multiplies a local mean."""
    return {name: value * comm.world_size for name, value in right_means(comm, metrics, count).items()}


@scores(
    "score-cuts-duplicates-off-the-end",
    TWICE,
    seen_in=("huggingface/accelerate#575",),
    cause="duplicates-cut-at-end",
    **ONCE,
)
def cut_off_the_end(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Duplicate rows are cut off the end of the gathered array, which holds rank after rank."""
    lengths = comm.all_gather(np.array(len(indices))).tolist()
    padded = np.full(max(lengths), -1, np.int64)
    padded[: len(indices)] = indices
    everyone = comm.all_gather(padded)
    size = len(np.unique(everyone[everyone >= 0]))
    left = max(0, size - sum(lengths[:rank]))
    places = np.arange(rank * 10**6, rank * 10**6 + len(indices))[:left]  # a different index for each row
    return right_score(comm, name, outputs[:left], targets[:left], places)


class Rescheduled(Trainer):
    """Applies the linear schedule at step at()."""

    def at(self) -> int:
        return self.progress.step

    def learning_rate(self) -> float:
        left = max(0, self.steps - self.at())
        rate = self.task.optimizer.lr
        return rate * left / self.steps if self.task.schedule == "linear" else rate


@trainer("schedule-by-micro-batches-seen", SCHEDULE, seen_in=("tracel-ai/burn#5695",), cause="schedule-per-micro-batch")
class ByMicroBatches(Rescheduled):
    """The schedule advances with every micro-batch instead of every step."""

    seen = 0

    def gather(self, window: Window) -> list[float]:
        self.seen += len(window)
        return super().gather(window)

    def at(self) -> int:
        return self.seen - 1


@trainer("schedule-by-parameters", SCHEDULE, seen_in=("pytorch/pytorch#74737",), cause="schedule-per-parameter")
class ByParameters(Rescheduled):
    """The schedule advances once for each parameter."""

    def at(self) -> int:
        return self.progress.step * len(self.replica.parameters())


@trainer(
    "reset-within-the-window",
    WINDOWS,
    seen_in=("meituan-longcat/LongCat-Image#46",),
    cause="run-keeps-last-micro-batch-only",
)
class ResetWithin(Trainer):
    """zero_grad() runs before the last micro-batch of a window."""

    def gather(self, window: Window) -> list[float]:
        losses = []
        for number, rows in enumerate(window, start=1):
            if number == len(window):
                self.replica.zero_grad()
            with nullcontext() if number == len(window) else self.replica.no_sync():
                losses.append(self.backward(rows, self.weight(rows, window)))
        return losses
