"""The seam of a training run: an effect on a method or property of the trainer in one circumstance.

A circumstance is a predicate over the trainer, with its task, progress, rank and world size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ddpcheck.contract.allowed_names import MODEL_FEATURES
from ddpcheck.contract.trainer import TrainingTask

from ...data_parallel.trainer import Engine, Trainer
from ..trainers import trainer
from .circumstances import Circumstance

Function = Callable[..., Any]
WITH_PENALTY = MODEL_FEATURES | {"penalty"}


class _Placed(Trainer):
    """A correct trainer, with its rank and world size as attributes for circumstances."""

    rank = property(lambda run: run.engine.rank)
    world = property(lambda run: run.engine.world_size)


@dataclass(frozen=True)
class TrainerEffect:
    """name: the wrong method or property. done: the function in its place; done(run, right, *arguments)."""

    name: str
    done: Function
    register = staticmethod(trainer)

    def implemented(self, where: Circumstance) -> type[Any]:
        right = getattr(Trainer, self.name)
        function: Function = right.__get__ if isinstance(right, property) else right

        def wrong(run: Any, *arguments: Any) -> Any:
            rightly = partial(function, run)
            return self.done(run, rightly, *arguments) if where(run) else rightly(*arguments)

        return type("Wrong", (_Placed,), {self.name: property(wrong) if isinstance(right, property) else wrong})


def result(name: str, changed: Function) -> TrainerEffect:
    """Change the result: changed(run, result)."""
    return TrainerEffect(name, lambda run, right, *arguments: changed(run, right(*arguments)))


def given(name: str, changed: Function) -> TrainerEffect:
    """Change the first argument: changed(run, argument)."""
    return TrainerEffect(name, lambda run, right, first, *others: right(changed(run, first), *others))


def in_place_of(name: str, function: Function) -> TrainerEffect:
    """Do something else: function(run, *arguments)."""
    return TrainerEffect(name, lambda run, right, *arguments: function(run, *arguments))


def after(name: str, function: Function) -> TrainerEffect:
    """Do something to the trainer afterwards: function(run)."""

    def done(run: Any, right: Function, *arguments: Any) -> Any:
        found = right(*arguments)
        function(run)
        return found

    return TrainerEffect(name, done)


def left_out(name: str) -> TrainerEffect:
    """Do nothing."""
    return in_place_of(name, lambda run, *arguments: None)


def of_task(changed: Callable[[TrainingTask], TrainingTask]) -> TrainerEffect:
    """Follow another task. The circumstance is evaluated before the trainer has a task."""

    def made(run: Any, right: Function, engine: Engine, task: TrainingTask) -> None:
        right(engine, changed(task))

    return TrainerEffect("__init__", made)


def of_optimizer(**settings: Any) -> TrainerEffect:
    """Train with an optimizer of other settings."""
    return of_task(lambda task: replace(task, optimizer=replace(task.optimizer, **settings)))


def progressed(name: str, **changes: Any) -> TrainerEffect:
    """Change entries of the progress afterwards."""
    return after(name, partial(set_progress, **changes))


def set_progress(run: Any, **changes: Any) -> None:
    run.progress = replace(run.progress, **changes)


later = Circumstance("after the first epoch", lambda run: run.progress.epoch)
accumulating = Circumstance("with micro-batches", lambda run: run.task.micro_batches > 1)
scheduled = Circumstance("with a schedule", lambda run: run.task.schedule != "constant")
patient = Circumstance("with patience", lambda run: run.task.patience is not None)
keeping_best = Circumstance("when the best weights are kept", lambda run: run.task.keep_best)
resumed = Circumstance("in a resumed run", lambda run: run.task.resume)
at_the_end = Circumstance("after the last epoch", lambda run: run.progress.epoch == run.task.epochs)
