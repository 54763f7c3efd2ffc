"""Training runs with one wrong or extra step, or with a checkpoint or copy made too early."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ddpcheck.contract.trainer import TrainingTask
from ddpcheck.seeded_values import Array

from ...data_parallel.trainer import Engine, Trainer, Window
from ...numpy_network.optimizers import Sgd
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.trainers import given, keeping_best, result
from ..trainers import trainer
from .epoch_boundaries import ENDS
from .features_together import ACCUMULATED
from .resuming import BEST, RESUMED
from .schedules import SCHEDULE
from .training import SAMPLES


def _learned(run: Trainer, found: Mapping[str, Array]) -> Mapping[str, Array]:
    return {name: found[name] for name in run.replica._network.learned}


# fmt: off
table(
    globals(),
    Fault("orders-of-four-epochs", "Every fourth epoch repeats the same order.",
          where=always, caught_by=SAMPLES, cause="epochs-counted-round", world_size=1,
          effect=given("order", lambda run, epoch: epoch % 4)),
    Fault("best-without-what-is-frozen", "The best weights lack frozen parameters.",
          where=keeping_best, caught_by=BEST, cause="result-violates-contract",
          effect=result("best", _learned), world_size=1),
)
# fmt: on


class _RateInside(Sgd):
    """v <- momentum v + lr g; p <- p - v."""

    def step(self, gradients: Mapping[str, Array | None]) -> None:
        for name, gradient in gradients.items():
            if gradient is not None:
                before = self._velocity.get(name, np.zeros_like(gradient))
                parameter = self._parameters[name]
                velocity = self._spec.momentum * before + self.lr * self._decayed(gradient, parameter)
                self._velocity[name] = np.asarray(velocity, parameter.dtype)
                parameter -= self._velocity[name]


@trainer("rate-in-the-momentum", SCHEDULE, cause="rate-in-momentum", world_size=1)
class RateInMomentum(Trainer):
    """Momentum sums updates instead of gradients, which is wrong when the learning rate changes."""

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        super().__init__(engine, task)
        if task.optimizer.name == "sgd":
            self.replica._optimizer = _RateInside(task.optimizer, self.replica._network.parameters)


class _OnceMore(Trainer):
    """Takes an extra step at the end of an epoch if the last window is full."""

    def windows(self, order: Sequence[int]) -> Iterator[Window]:
        window: Window = ()
        for window in super().windows(order):
            yield window
        if len(window) == self.task.micro_batches:
            self.again()

    def again(self) -> None:
        self.replica.step()


@trainer("empty-last-window", ENDS, ACCUMULATED, cause="step-taken-twice", world_size=1)
class EmptyFinalWindow(_OnceMore):
    """After a full last window, an extra step uses the old gradients again."""


@trainer("empty-last-window-of-zeros", ENDS, cause="step-taken-twice-with-zeros", world_size=1)
class EmptyFinalWindowOfZeros(_OnceMore):
    """After a full last window, an extra step with zero gradients applies momentum and weight decay."""

    def again(self) -> None:
        self.replica.zero_gradients()
        super().again()


@trainer("empty-window-takes-the-last-gradient", ACCUMULATED, cause="empty-window-steps", world_size=1)
class EmptyWindowOfSeveral(_OnceMore):
    """After an epoch with accumulation, an extra step uses the old gradients again."""

    def again(self) -> None:
        if self.task.micro_batches > 1:
            super().again()


@trainer("empty-window-takes-zeros", ACCUMULATED, cause="empty-window-steps-with-zeros", world_size=1)
class EmptyWindowOfSeveralZeros(_OnceMore):
    """After an epoch with accumulation, an extra step with zero gradients applies momentum."""

    def again(self) -> None:
        if self.task.micro_batches > 1:
            self.replica.zero_gradients()
            super().again()


@trainer("best-before-the-last-step", BEST, cause="best-kept-before-last-step", world_size=1)
class BestBeforeLastStep(Trainer):
    """The best weights are copied before the epoch's last step."""

    def step(self) -> None:
        self.before = self.replica.parameters()
        super().step()

    def keep_best(self, loss: float) -> None:
        if self.task.keep_best and loss < self.progress.lowest:
            self.progress = replace(self.progress, lowest=loss, best=self.before)


@trainer("saved-before-the-best-is-noted", RESUMED, cause="checkpoint-before-best", world_size=1)
class SavedBeforeBest(Trainer):
    """A checkpoint is written before its epoch is compared with the best."""

    def keep_best(self, loss: float) -> None:
        if self.task.folder is not None:
            super().save()
        super().keep_best(loss)

    def save(self) -> None:
        """keep_best() has already saved."""
