"""Training runs, metrics and scores as issue trackers tell of them: faults in reductions, counts, sums and cuts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ...data_parallel.trainer import Trainer, Window
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.trainers import in_place_of, result
from ..facet_seams import metrics, scores
from ..metrics.metrics import WEIGHTED
from ..metrics.score_samples import ONCE
from ..metrics.scores import TWICE, right_score
from ..trainers import trainer
from .schedules import SCHEDULE
from .training import LOSS, WINDOWS


def _taken_apart(run: Trainer, windows: Iterator[Window]) -> Iterator[Window]:
    *full, last = windows
    yield from full
    yield from ([rows] for rows in last)


# fmt: off
table(
    globals(),
    Fault("schedule-as-long-as-batches", where=always, caught_by=SCHEDULE, cause="schedule-length-in-micro-batches",
          effect=in_place_of("steps", "the schedule's length is that of all batches, where gradients are accumulated",
                             lambda run: run.task.epochs * -(-run.length // run.task.batch_size)),
          seen_in=("axolotl-ai-cloud/axolotl#1170",), world_size=1),
    Fault("last-window-taken-apart", where=always, caught_by=WINDOWS, cause="last-window-split",
          effect=result("windows", "at the loader's end every micro-batch of its last batch is a step", _taken_apart),
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
    """no_sync is left out where batch_idx % k is 0, which is the window's first micro-batch."""

    def gather(self, window: Window) -> list[float]:
        losses = []
        for number, rows in enumerate(window):
            with self.replica.no_sync() if number else nullcontext():
                losses.append(self.backward(rows, self.weight(rows, window)))
        return losses


@trainer(
    "micro-batches-counted-over-epochs",
    WINDOWS,
    seen_in=("huggingface/transformers#33673",),
    cause="micro-batches-counted-on",
    world_size=1,
)
class CountedOverEpochs(Trainer):
    """A window ends where the number of all micro-batches so far is a multiple, and where the epoch does."""

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
    """Correct but for `update`: what sums up losses and samples is the trainer's, and reduced at an epoch's end."""

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
    """What sums up the losses is a buffer of the module, which each forward pass gives rank 0's value."""

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
    """The sums so far are summed over the ranks in every step, and go on from there."""

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
    """Sums and counts are averaged over the ranks before they are divided, and counts are integers."""
    size = comm.world_size
    counts = int(comm.all_reduce(np.array(count))) // size
    sums = {name: float(comm.all_reduce(np.array(value * count if count else 0.0))) for name, value in metrics.items()}
    return {name: total / size / counts if counts else float("nan") for name, total in sums.items()}


@scores(
    "score-cuts-duplicates-off-the-end",
    TWICE,
    seen_in=("huggingface/accelerate#575",),
    cause="duplicates-cut-at-end",
    **ONCE,
)
def cut_off_the_end(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Surplus rows are cut off the end of the gathered array, which holds rank after rank."""
    lengths = comm.all_gather(np.array(len(indices))).tolist()
    padded = np.full(max(lengths), -1, np.int64)
    padded[: len(indices)] = indices
    everyone = comm.all_gather(padded)
    size = len(np.unique(everyone[everyone >= 0]))
    left = max(0, size - sum(lengths[:rank]))
    places = np.arange(rank * 10**6, rank * 10**6 + len(indices))[:left]  # each row is a sample of its own
    return right_score(comm, name, outputs[:left], targets[:left], places)


class Rescheduled(Trainer):
    """The linear schedule is at the step that at() says."""

    def at(self) -> int:
        return self.progress.step

    def learning_rate(self) -> float:
        left = max(0, self.steps - self.at())
        rate = self.task.optimizer.lr
        return rate * left / self.steps if self.task.schedule == "linear" else rate


@trainer("schedule-by-micro-batches-seen", SCHEDULE, seen_in=("tracel-ai/burn#5695",), cause="schedule-per-micro-batch")
class ByMicroBatches(Rescheduled):
    """The scheduler is stepped with every micro-batch: before the update, for all of the window but its last one."""

    seen = 0

    def gather(self, window: Window) -> list[float]:
        self.seen += len(window)
        return super().gather(window)

    def at(self) -> int:
        return self.seen - 1


@trainer("schedule-by-parameters", SCHEDULE, seen_in=("pytorch/pytorch#74737",), cause="schedule-per-parameter")
class ByParameters(Rescheduled):
    """The counter of steps is in the loop over the parameters."""

    def at(self) -> int:
        return self.progress.step * len(self.replica.parameters())


@trainer(
    "reset-within-the-window",
    WINDOWS,
    seen_in=("meituan-longcat/LongCat-Image#46",),
    cause="run-keeps-last-micro-batch-only",
)
class ResetWithin(Trainer):
    """zero_grad comes before the micro-batch that is synchronised, and not after the step."""

    def gather(self, window: Window) -> list[float]:
        losses = []
        for number, rows in enumerate(window, start=1):
            if number == len(window):
                self.replica.zero_grad()
            with nullcontext() if number == len(window) else self.replica.no_sync():
                losses.append(self.backward(rows, self.weight(rows, window)))
        return losses
