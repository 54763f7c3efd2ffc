"""Training runs that are wrong only under some circumstance; the effects are in trainer_effects.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from effect_reports import judge_effect
from trainer_effects import EFFECTS as EFFECTS

from ddpcheck.contract import Capabilities
from ddpcheck.contract.adapter import Batch, Facets
from ddpcheck.contract.trainer import TrainingRun
from ddpcheck_implementations.data_parallel import numpy_facets
from ddpcheck_implementations.data_parallel.checkpoint import Checkpoint, read, share, write
from ddpcheck_implementations.data_parallel.trainer import Trainer, Window


def promised(right: Capabilities) -> Capabilities:
    """The promises of these adapters, a subset of the reference's."""
    return right.of_facets("trainer")


def _some(window: Window) -> int:
    return sum(map(len, window))


CIRCUMSTANCES: dict[str, Callable[[Any], Any]] = {
    "it is not the first run of the process": lambda t: t.runs > 1,
    "it is the tenth run of the process or a later one": lambda t: t.runs >= 10,
    "the run before had another batch size": lambda t: t.earlier and t.earlier.batch_size != t.task.batch_size,
    "it is the first epoch": lambda t: t.epoch == 0,
    "it is the second epoch": lambda t: t.epoch == 1,
    "it is the third epoch or a later one": lambda t: t.epoch > 1,
    "it is the last of several epochs": lambda t: t.epoch == t.task.epochs - 1 > 0,
    "there is one epoch": lambda t: t.task.epochs == 1,
    "there are more than four epochs": lambda t: t.task.epochs > 4,
    "it is the second step": lambda t: t.number == 2,
    "it is the tenth step or a later one": lambda t: t.number >= 10,
    "it is every third step": lambda t: t.number and t.number % 3 == 0,
    "it is the first step of a later epoch": lambda t: t.epoch and t.in_epoch == 1,
    "it is the last step of an epoch": lambda t: t.in_epoch == t.steps // t.task.epochs,
    "an epoch has one step": lambda t: t.steps == t.task.epochs,
    "an epoch has more than four steps": lambda t: t.steps > 4 * t.task.epochs,
    "a batch has one sample": lambda t: len(t.rows) == 1,
    "a batch has fewer samples than others": lambda t: 0 < len(t.rows) < t.task.batch_size,
    "all batches are full": lambda t: t.length % t.task.batch_size == 0,
    "the batch size is above a rank's samples": lambda t: t.task.batch_size > t.length,
    "samples are no multiple of the world size": lambda t: len(t.task.inputs) % t.engine.world_size,
    "there are fewer samples than ranks": lambda t: len(t.task.inputs) < t.engine.world_size,
    "there are more than 24 samples": lambda t: len(t.task.inputs) > 24,
    "it shuffles": lambda t: t.task.shuffle,
    "it does not shuffle": lambda t: not t.task.shuffle,
    "the seed is odd": lambda t: t.task.seed % 2,
    "a sample is an id": lambda t: t.task.inputs.dtype.kind == "i",
    "targets are labels": lambda t: t.task.model.loss == "cross_entropy",
    "a layer is frozen": lambda t: "frozen" in t.task.model.features(),
    "the loss has auxiliary terms": lambda t: t.task.model.features() & {"penalty", "activity", "auxiliary_head"},
    "the optimizer is Adam": lambda t: t.task.optimizer.name == "adam",
    "there is momentum": lambda t: t.task.optimizer.name == "sgd" and t.task.optimizer.momentum,
    "there is no momentum": lambda t: t.task.optimizer.name == "sgd" and not t.task.optimizer.momentum,
    "there is weight decay": lambda t: t.task.optimizer.weight_decay,
    "the learning rate is 1 or more": lambda t: t.task.optimizer.lr >= 1,
    "there are micro-batches": lambda t: t.task.micro_batches > 1,
    "there are three micro-batches": lambda t: t.task.micro_batches == 3,
    "a window is short": lambda t: t.window and len(t.window) < t.task.micro_batches,
    "there are more micro-batches than batches": lambda t: t.task.micro_batches > -(-t.length // t.task.batch_size),
    "a window has samples of an odd number": lambda t: len(t.window) > 1 and _some(t.window) % 2,
    "it clips": lambda t: t.task.max_norm,
    "it clips, with micro-batches": lambda t: t.task.max_norm and t.task.micro_batches > 1,
    "it clips, and there is nothing to clip": lambda t: t.task.max_norm and 0 < t.norm < t.task.max_norm,
    "it does not clip": lambda t: t.task.max_norm is None,
    "the schedule is linear": lambda t: t.task.schedule == "linear",
    "the schedule is linear, with micro-batches": lambda t: t.task.schedule == "linear" and t.task.micro_batches > 1,
    "it keeps the best": lambda t: t.task.keep_best,
    "it keeps the best, and the loss is higher than before": lambda t: t.task.keep_best and t.rises,
    "the loss is higher than in the epoch before": lambda t: t.rises,
    "the loss is no number": lambda t: t.losses and math.isnan(t.losses[-1]),
    "the loss is above 1000": lambda t: t.losses and t.losses[-1] > 1000,
    "it is saved": lambda t: t.task.folder,
    "it is to be cut": lambda t: t.task.stop_after,
    "it was resumed": lambda t: t.resumed,
    "it was resumed, and keeps the best": lambda t: t.resumed and t.task.keep_best,
    "it was resumed, and has momentum": lambda t: t.resumed and t.task.optimizer.momentum,
    "it was resumed, and is to be cut again": lambda t: t.resumed and t.task.stop_after,
    "it was resumed, with micro-batches": lambda t: t.resumed and t.task.micro_batches > 1,
    "there is nothing to resume from": lambda t: t.task.resume and not t.resumed,
    "it has patience": lambda t: t.task.patience,
    "it has patience for more than one epoch": lambda t: (t.task.patience or 0) > 1,
    "the rank is the last": lambda t: t.engine.rank == t.engine.world_size - 1,
    "the rank is 1": lambda t: t.engine.rank == 1,
}


def wrapped(right: Facets, circumstance: str, effect: str) -> dict[str, Any]:
    """The facet, and no others."""
    trainer: Any = partial(_Trainer, {"runs": 0, "task": None}, CIRCUMSTANCES[circumstance], *EFFECTS[effect])
    return {"train": numpy_facets(right.collectives, right.rank, right.world_size, trainer=trainer).train}


class _Trainer(Trainer):
    """A training run in which each computed value has a named place; the effect changes it there under the
    circumstance.
    """

    def __init__(
        self, process: dict[str, Any], when: Callable[..., Any], place: str, effect: Callable[..., Any], *run: Any
    ) -> None:
        self.when, self.place, self.effect = when, place, effect
        self.runs, self.earlier = process["runs"] + 1, process["task"]
        self.epoch = self.number = self.in_epoch = 0
        self.rows: Sequence[int] = ()
        self.window: Window = ()
        self.parts: list[tuple[list[float], Window]] = []  # of this epoch
        self.losses: list[float] = []
        self.norm, self.resumed, self.saved = 0.0, False, None
        self.own = self.reduced = np.zeros(0)
        super().__init__(*run)
        process |= {"runs": self.runs, "task": self.task}
        self.stale = self.replica.parameters()
        self._average = self.replica._mean
        self.replica._mean = self._mean  # type: ignore[method-assign]

    def at(self, place: str, right: Any) -> Any:
        """The value at this place: changed by the effect, or the right one."""
        if place != self.place or not self.when(self):
            return right
        return judge_effect(lambda: self.effect(self, deepcopy(right)), right)

    @property
    def rises(self) -> bool:
        return len(self.losses) > 1 and self.losses[-1] > self.losses[-2]

    def run(self) -> TrainingRun:
        told: TrainingRun = self.at("told", super().run())
        return told

    # ----------------------------------------------------------------------------------------------------- one epoch

    def order(self, epoch: int) -> Sequence[int]:
        self.epoch, self.in_epoch, self.parts = epoch, 0, []
        order: Sequence[int] = self.at("order", super().order(epoch))
        return order

    def windows(self, order: Sequence[int]) -> Iterator[Window]:
        yield from self.at("windows", list(super().windows(order)))

    def update(self, window: Window) -> float:
        self.window, self.number, self.in_epoch = window, self.number + 1, self.in_epoch + 1
        self.replica.zero_grad()
        losses = self.gather(window)
        self.norm = math.sqrt(
            sum(float((each**2).sum()) for each in self.replica.gradients().values() if each is not None)
        )
        if (most := self.at("norm", self.task.max_norm)) is not None:
            self.replica.clip(most)
        self.step()
        self.parts.append((losses, window))
        return self.summed(losses, window)

    def weight(self, rows: Sequence[int], window: Window) -> float:
        self.rows = rows
        weight: float = self.at("weight", super().weight(rows, window))
        return weight

    def backward(self, rows: Sequence[int], weight: float) -> float:
        chosen = list(rows)
        batch = self.at("batch", Batch(self.task.inputs[chosen], self.task.targets[chosen]))
        return self.replica.backward(batch, weight)

    def _mean(self, flat: Any) -> None:
        flat[...] = self.own = self.at("own gradient", flat.copy())
        self._average(flat)
        due = flat.copy()
        flat[...] = self.at("gradient", due)
        self.reduced = due

    def learning_rate(self) -> float:
        rate: float = self.at("rate", super().learning_rate())
        return rate

    def step(self) -> None:
        optimizer: Any = self.replica._optimizer
        spec, state = optimizer._spec, optimizer.state()
        optimizer._spec = self.at("optimizer", spec)
        if (found := self.at("momentum", state)) is not state:
            optimizer.load_state(found)
        before = self.replica.parameters()
        super().step()
        self.stale, optimizer._spec = before, spec
        for name, array in self.at("parameters", self.replica.parameters()).items():
            self.replica._network.parameters[name][...] = array

    def mean(self, total: float, samples: int) -> float:
        """The mean, with the sums of all ranks, which some effects need."""
        self.sums = self.engine.collectives.all_gather(np.array([total, samples]))
        self.losses.append(super().mean(total, samples))
        self.losses[-1] = loss = self.at("loss", self.losses[-1])
        return float(loss)

    def enough(self, losses: Sequence[float]) -> bool:
        return bool(self.at("end", super().enough(losses)))

    # --------------------------------------------------------------------------------------------------- what is kept

    def keep_best(self, loss: float) -> None:
        self.kept = self.progress
        super().keep_best(loss)
        if self.task.keep_best:
            self.progress = self.at("best", self.progress)

    def save(self) -> None:
        if self.engine.rank == 0:
            due = self.checkpoint()
            found: Checkpoint | None = self.at("saved", due)
            if found is not None:
                write(Path(str(self.task.folder)), found)
            self.saved = due

    def resume(self) -> None:
        due = read(Path(str(self.task.folder))) if self.engine.rank == 0 else None
        due = share(self.engine.collectives, due)
        self.resumed = due is not None
        found = self.at("found", due)
        if found is not None:
            self.replica.load_state(found.state)
            self.progress = found
