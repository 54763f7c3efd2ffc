"""A whole training run, written once over the other facets: sampler, replica, metrics and collectives.

All ranks decide alike, by numbers that are equal on all of them: the number of steps by the length of the
sampler, the learning rate by the step, the best epoch by the loss of all ranks, a resumed run's start by rank 0's checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from ddpcheck.contract.adapter import AggregateMetrics, Batch, Collectives, MakeSampler
from ddpcheck.contract.trainer import TrainingRun, TrainingTask
from ddpcheck.seeded_values import Array

from .checkpoint import Checkpoint, read, share, write
from .replica import DataParallel

Window = Sequence[Sequence[int]]
"""The micro-batches of one optimizer step: their samples on this rank."""


@dataclass(frozen=True)
class Engine:
    """The parts of a run on one rank."""

    rank: int
    world_size: int
    collectives: Collectives
    make_replica: Callable[..., DataParallel]
    make_sampler: MakeSampler
    aggregate: AggregateMetrics


class Trainer:
    """One run of a task on one rank. `progress` is the part that a checkpoint keeps."""

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        self.engine, self.task = engine, task
        self.replica = engine.make_replica(task.model, task.initial, task.optimizer, {})
        self.sampler = engine.make_sampler(len(task.inputs), shuffle=task.shuffle, seed=task.seed, drop_last=False)
        self.progress = Checkpoint(epoch=0, step=0, state={})
        self.rates: list[float] = []

    def run(self) -> TrainingRun:
        """All epochs that are left: each has its windows, its loss and, with a folder, its checkpoint."""
        if self.task.resume:
            self.resume()
        losses, indices = [], []
        for epoch in range(self.progress.epoch, self.task.stop_after or self.task.epochs):
            order = self.order(epoch)
            total = 0.0
            for window in self.windows(order):
                total += self.update(window)
            loss = self.mean(total, len(order))
            self.progress = replace(self.progress, epoch=epoch + 1)
            self.keep_best(loss)
            if self.task.folder is not None:
                self.save()
            losses.append(loss)
            indices.append(order)
            if self.enough(losses):
                break
        return TrainingRun(self.replica.parameters(), losses, indices, self.rates, self.best())

    # ----------------------------------------------------------------------------------------------------- one epoch

    def order(self, epoch: int) -> Sequence[int]:
        """This rank's samples. A resumed run comes to the same ones, as they depend on seed and epoch only."""
        self.sampler.set_epoch(epoch)
        return list(self.sampler)

    def windows(self, order: Sequence[int]) -> Iterator[Window]:
        """Windows of `micro_batches` batches; the last window and its last batch have the rest."""
        size = self.task.batch_size
        batches = [order[start : start + size] for start in range(0, self.length, size)]
        for start in range(0, len(batches), self.task.micro_batches):
            yield batches[start : start + self.task.micro_batches]

    @property
    def length(self) -> int:
        """Samples of an epoch on this rank, to begin with; every rank must count the same steps."""
        return len(self.sampler)

    @property
    def steps(self) -> int:
        """Optimizer steps of all epochs."""
        return self.task.epochs * -(-self.length // (self.task.batch_size * self.task.micro_batches))

    def update(self, window: Window) -> float:
        """One optimizer step. Returns the sum of the losses of the window's samples."""
        self.replica.zero_grad()
        losses = self.gather(window)
        if self.task.max_norm is not None:
            self.replica.clip(self.task.max_norm)
        self.step()
        return self.summed(losses, window)

    def gather(self, window: Window) -> list[float]:
        """Accumulate the window's gradient, and synchronise it once, with the last micro-batch. Returns their losses."""
        losses = []
        for number, rows in enumerate(window, start=1):
            with nullcontext() if number == len(window) else self.replica.no_sync():
                losses.append(self.backward(rows, self.weight(rows, window)))
        return losses

    def weight(self, rows: Sequence[int], window: Window) -> float:
        """Micro-batches weigh by their samples, so that the window's gradient is that of one large batch."""
        return len(rows) / max(1, sum(map(len, window)))

    def backward(self, rows: Sequence[int], weight: float) -> float:
        chosen = list(rows)
        return self.replica.backward(Batch(self.task.inputs[chosen], self.task.targets[chosen]), weight)

    def summed(self, losses: Sequence[float], window: Window) -> float:
        """The sum over the window's samples, from the micro-batches' means."""
        return sum(loss * len(rows) for loss, rows in zip(losses, window, strict=True))

    def step(self) -> None:
        self.replica.learning_rate = self.learning_rate()
        self.rates.append(self.replica.learning_rate)
        self.replica.step()
        self.progress = replace(self.progress, step=self.progress.step + 1)

    def learning_rate(self) -> float:
        """By the number of steps so far, which all ranks have alike: not by the samples that this rank has seen."""
        rate = self.task.optimizer.lr
        return rate * (self.steps - self.progress.step) / self.steps if self.task.schedule == "linear" else rate

    def mean(self, total: float, samples: int) -> float:
        """The mean loss over the samples of all ranks, from the sum over this rank's."""
        mean = {"loss": total / samples if samples else 0.0}
        return self.engine.aggregate(mean, samples).get("loss", 0.0)

    def enough(self, losses: Sequence[float]) -> bool:
        """Whether the lowest loss lies `patience` epochs back: by the losses of all ranks, or they would not end together."""
        return self.task.patience is not None and len(losses) - 1 - losses.index(min(losses)) >= self.task.patience

    # -------------------------------------------------------------------------------------------------- best weights

    def keep_best(self, loss: float) -> None:
        """Keep the parameters if no earlier epoch had so low a loss: that of all ranks, or they would keep others."""
        if self.task.keep_best and loss < self.progress.lowest:
            self.progress = replace(self.progress, lowest=loss, best=self.replica.parameters())

    def best(self) -> Mapping[str, Array] | None:
        """If every loss was NaN, or infinite, no epoch is better than the last."""
        if not self.task.keep_best:
            return None
        return self.progress.best or self.replica.parameters()

    # --------------------------------------------------------------------------------------------------- checkpoints

    def save(self) -> None:
        """Rank 0 writes for all, as all have the same; the others need neither the folder nor the file."""
        if self.engine.rank == 0:
            assert self.task.folder is not None
            write(Path(self.task.folder), self.checkpoint())

    def checkpoint(self) -> Checkpoint:
        return replace(self.progress, state=self.replica.state())

    def resume(self) -> None:
        """Go on from the checkpoint that rank 0 finds, if it finds one. No other rank looks for itself."""
        assert self.task.folder is not None
        found = read(Path(self.task.folder)) if self.engine.rank == 0 else None
        found = share(self.engine.collectives, found)
        if found is not None:
            self.replica.load_state(found.state)
            self.progress = found
