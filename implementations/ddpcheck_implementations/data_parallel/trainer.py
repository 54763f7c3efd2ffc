"""The trainer facet: a whole training run over the other facets (sampler, replica, metrics, collectives).

Decisions use numbers that are equal on all ranks: the number of steps by the length of the sampler, the learning rate
by the step, the best epoch by the loss of all ranks, the start of a resumed run by rank 0's checkpoint.
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
    """The facets that a training run needs on one rank."""

    rank: int
    world_size: int
    collectives: Collectives
    make_replica: Callable[..., DataParallel]
    make_sampler: MakeSampler
    aggregate: AggregateMetrics


class Trainer:
    """A training run on one rank. `progress` is saved in checkpoints."""

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        self.engine, self.task = engine, task
        self.replica = engine.make_replica(task.model, task.initial, task.optimizer, {})
        self.sampler = engine.make_sampler(len(task.inputs), shuffle=task.shuffle, seed=task.seed, drop_last=False)
        self.progress = Checkpoint(epoch=0, step=0, state={})
        self.rates: list[float] = []

    def run(self) -> TrainingRun:
        """Run the remaining epochs. Each saves a checkpoint if the task has a folder."""
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
        """Return this rank's samples of an epoch. They depend on seed and epoch only, so a resumed run has the same."""
        self.sampler.set_epoch(epoch)
        return list(self.sampler)

    def windows(self, order: Sequence[int]) -> Iterator[Window]:
        """Yield windows of `micro_batches` batches; the last window and its last batch may be smaller."""
        size = self.task.batch_size
        batches = [order[start : start + size] for start in range(0, self.length, size)]
        for start in range(0, len(batches), self.task.micro_batches):
            yield batches[start : start + self.task.micro_batches]

    @property
    def length(self) -> int:
        """The number of samples per epoch, equal on all ranks, so that all have the same number of steps."""
        return len(self.sampler)

    @property
    def steps(self) -> int:
        """The number of optimizer steps of all epochs."""
        return self.task.epochs * -(-self.length // (self.task.batch_size * self.task.micro_batches))

    def update(self, window: Window) -> float:
        """Take one optimizer step. Returns the sum of the losses of the window's samples."""
        self.replica.zero_grad()
        losses = self.gather(window)
        if self.task.max_norm is not None:
            self.replica.clip(self.task.max_norm)
        self.step()
        return self.summed(losses, window)

    def gather(self, window: Window) -> list[float]:
        """Accumulate the window's gradient; synchronise once, in the last micro-batch. Returns the micro-batches' losses."""
        losses = []
        for number, rows in enumerate(window, start=1):
            with nullcontext() if number == len(window) else self.replica.no_sync():
                losses.append(self.backward(rows, self.weight(rows, window)))
        return losses

    def weight(self, rows: Sequence[int], window: Window) -> float:
        """Return a micro-batch's share of the window's samples, so that the window's gradient is that of one large batch."""
        return len(rows) / max(1, sum(map(len, window)))

    def backward(self, rows: Sequence[int], weight: float) -> float:
        chosen = list(rows)
        return self.replica.backward(Batch(self.task.inputs[chosen], self.task.targets[chosen]), weight)

    def summed(self, losses: Sequence[float], window: Window) -> float:
        """Return the sum of losses over the window's samples, from the micro-batches' means."""
        return sum(loss * len(rows) for loss, rows in zip(losses, window, strict=True))

    def step(self) -> None:
        self.replica.learning_rate = self.learning_rate()
        self.rates.append(self.replica.learning_rate)
        self.replica.step()
        self.progress = replace(self.progress, step=self.progress.step + 1)

    def learning_rate(self) -> float:
        """Return the rate of the next step, by the number of steps so far, which is equal on all ranks."""
        rate = self.task.optimizer.lr
        return rate * (self.steps - self.progress.step) / self.steps if self.task.schedule == "linear" else rate

    def mean(self, total: float, samples: int) -> float:
        """Return the mean loss over the samples of all ranks, from the sum over this rank's samples."""
        mean = {"loss": total / samples if samples else 0.0}
        return self.engine.aggregate(mean, samples).get("loss", 0.0)

    def enough(self, losses: Sequence[float]) -> bool:
        """Whether the lowest loss of all ranks is `patience` epochs old, so that all ranks stop at the same epoch."""
        return self.task.patience is not None and len(losses) - 1 - losses.index(min(losses)) >= self.task.patience

    # -------------------------------------------------------------------------------------------------- best weights

    def keep_best(self, loss: float) -> None:
        """Keep the parameters if the loss of all ranks is the lowest so far."""
        if self.task.keep_best and loss < self.progress.lowest:
            self.progress = replace(self.progress, lowest=loss, best=self.replica.parameters())

    def best(self) -> Mapping[str, Array] | None:
        """Return the parameters of the best epoch; the last ones if every loss was NaN or infinite."""
        if not self.task.keep_best:
            return None
        return self.progress.best or self.replica.parameters()

    # --------------------------------------------------------------------------------------------------- checkpoints

    def save(self) -> None:
        """Write the checkpoint on rank 0. State is equal on all ranks, so the others need no access to the folder."""
        if self.engine.rank == 0:
            assert self.task.folder is not None
            write(Path(self.task.folder), self.checkpoint())

    def checkpoint(self) -> Checkpoint:
        return replace(self.progress, state=self.replica.state())

    def resume(self) -> None:
        """Restore the checkpoint that rank 0 finds, if any. Other ranks do not read the folder."""
        assert self.task.folder is not None
        found = read(Path(self.task.folder)) if self.engine.rank == 0 else None
        found = share(self.engine.collectives, found)
        if found is not None:
            self.replica.load_state(found.state)
            self.progress = found
