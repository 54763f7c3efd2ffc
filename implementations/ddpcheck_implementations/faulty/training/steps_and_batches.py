"""Training runs in which one rule of a step is another: its samples, gradients, clipping, terms of the loss, or number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ddpcheck.contract.names import MODEL_FEATURES
from ddpcheck.contract.trainer import TrainingTask
from ddpcheck.seeded_values import Array

from ...data_parallel.trainer import Engine, Trainer, Window
from ...numpy_network.terms import Penalised
from ..trainers import trainer
from .schedules import UnevenShards
from .single_rules import ENDS, SCHEDULE, WINDOWS


@trainer("window-of-one-micro-batch", WINDOWS, cause="step-per-micro-batch", world_size=1)
class StepPerMicroBatch(Trainer):
    """The number of micro-batches is not passed on."""

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        super().__init__(engine, replace(task, micro_batches=1))


class _OtherRows(Trainer):
    """Batches have other samples than those of the sampler."""

    begun: Sequence[int] = ()

    def rows(self, batch: Sequence[int]) -> Sequence[int]:
        """A batch's samples."""
        return batch

    def windows(self, order: Sequence[int]) -> Iterator[Window]:
        self.begun = order[: self.task.batch_size]
        for window in super().windows(order):
            yield [self.rows(batch) for batch in window]


@trainer("first-sample-in-place-of-the-last", WINDOWS, cause="first-sample-repeated", world_size=1)
class FirstForLast(_OtherRows):
    """Samples are loaded in pairs: in a batch of odd size the last sample is replaced by the first."""

    def rows(self, batch: Sequence[int]) -> Sequence[int]:
        return [*batch[:-1], *batch[:1]] if len(batch) % 2 else batch


@trainer("short-batch-filled-from-the-first", ENDS, cause="short-batch-filled", world_size=1)
class ShortBatchFilled(_OtherRows):
    """A buffer of the size of a batch is written to its end: the last samples come from the epoch's first batch."""

    def rows(self, batch: Sequence[int]) -> Sequence[int]:
        return [*batch, *self.begun][: max(self.task.batch_size, len(batch))]


@trainer("gradients-over-world-size-again", ENDS, cause="gradients-divided-again")
class DividedAgain(Trainer):
    """The loss is divided by the number of ranks, and so is the sum of the gradients."""

    def weight(self, rows: Sequence[int], window: Window) -> float:
        return super().weight(rows, window) / self.engine.world_size


class _Narrow:
    """Collectives that send averages in half precision."""

    def __init__(self, collectives: Any) -> None:
        self._collectives = collectives

    def __getattr__(self, name: str) -> Any:
        return getattr(self._collectives, name)

    def all_reduce(self, array: Array, op: str = "sum") -> Array:
        sent = array.astype(np.float16).astype(array.dtype) if op == "mean" else array
        return np.asarray(self._collectives.all_reduce(sent, op))

    def all_reduce_in_place(self, array: Array, op: str) -> None:
        array[...] = self.all_reduce(array, op)


@trainer("gradients-through-float16", ENDS, cause="gradients-sent-narrow")
class SentNarrow(Trainer):
    """Gradients are sent in half precision."""

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        super().__init__(engine, task)
        replica: Any = self.replica
        replica._collectives = _Narrow(engine.collectives)


@trainer(
    "uneven-shards-weigh-equally",
    SCHEDULE,
    WINDOWS,
    cause="ranks-weighed-equally",
    remainder="uneven",
    uneven_batches="weighted",
)
class UnevenWeighEqually(UnevenShards):
    """Ranks weigh equally, though they are promised to count by their samples."""


class _OtherNorm(Trainer):
    """The largest norm is multiplied by a factor."""

    factor = 1.0

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        norm = None if task.max_norm is None else task.max_norm * self.factor
        super().__init__(engine, replace(task, max_norm=norm))


@trainer("largest-norm-doubled", ENDS, WINDOWS, cause="max-norm-doubled", world_size=1)
class NormDoubled(_OtherNorm):
    """The largest norm is doubled."""

    factor = 2.0


@trainer("largest-norm-halved", ENDS, WINDOWS, cause="max-norm-halved", world_size=1)
class NormHalved(_OtherNorm):
    """The largest norm is halved."""

    factor = 0.5


@trainer("short-window-goes-unclipped", WINDOWS, cause="short-window-not-clipped", world_size=1)
class ShortWindowUnclipped(Trainer):
    """The step behind the loop, for the batches that are left, does not clip."""

    def update(self, window: Window) -> float:
        norm = self.task.max_norm
        if len(window) < self.task.micro_batches:
            self.task = replace(self.task, max_norm=None)
        total = super().update(window)
        self.task = replace(self.task, max_norm=norm)
        return total


@trainer("clipped-before-the-reduction", ENDS, WINDOWS, cause="run-clipped-by-own-norm")
class ClippedBefore(Trainer):
    """Each rank clips its own gradients, and then they are reduced."""

    def gather(self, window: Window) -> list[float]:
        with self.replica.no_sync():
            losses = super().gather(window)
        if self.task.max_norm is not None:
            self.replica.clip(self.task.max_norm)
        self.replica.synchronise()
        return losses


class _OtherPenalty(Trainer):
    """Penalties of the loss are multiplied by `factor()`."""

    def factor(self) -> float:
        return 1.0

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        super().__init__(engine, task)
        for term in self.replica._network.terms:
            if isinstance(term, Penalised):
                term.coefficient *= self.factor()


@trainer("penalty-on-every-rank", ENDS, cause="auxiliary-terms-per-rank", model_features=MODEL_FEATURES | {"penalty"})
class PenaltyPerRank(_OtherPenalty):
    """The penalty is multiplied by the number of ranks, over which it is not averaged."""

    def factor(self) -> float:
        return self.engine.world_size


@trainer(
    "penalty-left-out",
    ENDS,
    cause="run-without-auxiliary-terms",
    world_size=1,
    model_features=MODEL_FEATURES | {"penalty"},
)
class PenaltyLeftOut(_OtherPenalty):
    """The loop computes the loss itself, and leaves out penalties."""

    def factor(self) -> float:
        return 0.0


@trainer("momentum-kept-from-the-first-epoch", ENDS, cause="momentum-not-carried", world_size=1)
class MomentumKept(Trainer):
    """After the first epoch each step begins with the momentum that the first epoch ended with."""

    def step(self) -> None:
        before = self.replica._optimizer.state()
        super().step()
        if self.progress.epoch:
            self.replica._optimizer.load_state(before)
