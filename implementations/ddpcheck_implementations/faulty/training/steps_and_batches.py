"""Training runs with wrong samples, gradients, clipping, loss terms or counts of steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ddpcheck.contract.trainer import TrainingTask
from ddpcheck.seeded_values import Array

from ...data_parallel.trainer import Engine, Trainer, Window
from ...numpy_network.terms import Penalised
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.trainers import WITH_PENALTY, after, of_task, result
from ..trainers import trainer
from .schedules import UnevenShards
from .single_rules import ENDS, SCHEDULE, WINDOWS

_NORM_DOUBLED = of_task(lambda task: replace(task, max_norm=task.max_norm and task.max_norm * 2))
_NORM_HALVED = of_task(lambda task: replace(task, max_norm=task.max_norm and task.max_norm / 2))


def _multiply_penalties(run: Any, factor: float) -> None:
    for term in run.replica._network.terms:
        if isinstance(term, Penalised):
            term.coefficient *= factor


# fmt: off
table(
    globals(),
    Fault("window-of-one-micro-batch", "Accumulation is ignored: every micro-batch is a step.",
          where=always, caught_by=WINDOWS, cause="step-per-micro-batch", world_size=1,
          effect=of_task(lambda task: replace(task, micro_batches=1))),
    Fault("gradients-over-world-size-again", "Gradients are divided by the world size twice.",
          where=always, caught_by=ENDS, cause="gradients-divided-again",
          effect=result("weight", lambda run, weight: weight / run.world)),
    Fault("largest-norm-doubled", "The clipping limit is doubled.",
          where=always, caught_by=(ENDS, WINDOWS), cause="max-norm-doubled", world_size=1,
          effect=_NORM_DOUBLED),
    Fault("largest-norm-halved", "The clipping limit is halved.",
          where=always, caught_by=(ENDS, WINDOWS), cause="max-norm-halved", world_size=1,
          effect=_NORM_HALVED),
    Fault("penalty-on-every-rank", "The penalty is multiplied by the world size.",
          where=always, caught_by=ENDS, cause="auxiliary-terms-per-rank",
          effect=after("__init__", lambda run: _multiply_penalties(run, run.world)), model_features=WITH_PENALTY),
    Fault("penalty-left-out", "The loss lacks the penalty.",
          where=always, caught_by=ENDS, cause="run-without-auxiliary-terms", world_size=1,
          effect=after("__init__", lambda run: _multiply_penalties(run, 0.0)), model_features=WITH_PENALTY),
)
# fmt: on


class _OtherRows(Trainer):
    """Changes the sampler's batches."""

    begun: Sequence[int] = ()

    def rows(self, batch: Sequence[int]) -> Sequence[int]:
        """The samples to use for this batch."""
        return batch

    def windows(self, order: Sequence[int]) -> Iterator[Window]:
        self.begun = order[: self.task.batch_size]
        for window in super().windows(order):
            yield [self.rows(batch) for batch in window]


@trainer("first-sample-in-place-of-the-last", WINDOWS, cause="first-sample-repeated", world_size=1)
class FirstForLast(_OtherRows):
    """In a batch of odd size, the last sample is replaced by the first."""

    def rows(self, batch: Sequence[int]) -> Sequence[int]:
        return [*batch[:-1], *batch[:1]] if len(batch) % 2 else batch


@trainer("short-batch-filled-from-the-first", ENDS, cause="short-batch-filled", world_size=1)
class ShortBatchFilled(_OtherRows):
    """A short batch is filled with samples of the epoch's first batch."""

    def rows(self, batch: Sequence[int]) -> Sequence[int]:
        return [*batch, *self.begun][: max(self.task.batch_size, len(batch))]


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
    """Gradients are sent as float16."""

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
    """Ranks have equal weight, although weights by samples are promised."""


@trainer("short-window-goes-unclipped", WINDOWS, cause="short-window-not-clipped", world_size=1)
class ShortWindowUnclipped(Trainer):
    """The step of a short accumulation window does not clip."""

    def update(self, window: Window) -> float:
        norm = self.task.max_norm
        if len(window) < self.task.micro_batches:
            self.task = replace(self.task, max_norm=None)
        total = super().update(window)
        self.task = replace(self.task, max_norm=norm)
        return total


@trainer("clipped-before-the-reduction", ENDS, WINDOWS, cause="run-clipped-by-own-norm")
class ClippedBefore(Trainer):
    """Each rank clips its own gradients before the reduction."""

    def gather(self, window: Window) -> list[float]:
        with self.replica.no_sync():
            losses = super().gather(window)
        if self.task.max_norm is not None:
            self.replica.clip(self.task.max_norm)
        self.replica.synchronise()
        return losses


@trainer("momentum-kept-from-the-first-epoch", ENDS, cause="momentum-not-carried", world_size=1)
class MomentumKept(Trainer):
    """After the first epoch, every step starts from the momentum at that epoch's end."""

    def step(self) -> None:
        before = self.replica._optimizer.state()
        super().step()
        if self.progress.epoch:
            self.replica._optimizer.load_state(before)
