"""Records learning-rate schedules: the steps that each is made for, how often it was stepped before each optimizer step, and
the metrics that it was given.
"""

from __future__ import annotations

import functools
from typing import Any

from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, OneCycleLR, PolynomialLR, ReduceLROnPlateau

from ..recorded_process import Run
from . import script_objects
from .patching import replace

_LENGTHS = {OneCycleLR: "total_steps", CosineAnnealingLR: "T_max", PolynomialLR: "total_iters"}


class Schedules:
    """The schedules of a process, in the order in which they were made."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._made: list[Any] = []
        self._objects = script_objects.of(run)

    def add(self, schedule: Any) -> None:
        length = next(
            (getattr(schedule, name, None) for kind, name in _LENGTHS.items() if isinstance(schedule, kind)), None
        )
        self.run.note(
            "schedule", schedule=len(self._made), optimizer=self.optimizer_of(schedule), name=type(schedule).__name__,
            length=int(length) if isinstance(length, (int, float)) else None, line=self.run.line(),
        )  # fmt: skip
        self._made.append(schedule)

    def optimizer_of(self, schedule: Any) -> int:
        """The number of the schedule's optimizer, also behind a framework's optimizer; -1 if it is none of torch's."""
        groups = schedule.optimizer.param_groups
        return next((place for place, each in enumerate(self._objects.optimizers) if each.param_groups is groups), -1)

    def places(self) -> list[int]:
        """The number of steps that each schedule has taken."""
        return [int(each.last_epoch) for each in self._made]


@functools.cache
def of(run: Run) -> Schedules:
    """The schedules of this run."""
    return Schedules(run)


def install(run: Run) -> None:
    schedules = of(run)

    def make_init(original: Any) -> Any:
        def make(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)  # kinds of schedules set their length before they call this
            schedules.add(self)

        return make

    def make_step(original: Any) -> Any:
        def step(self: Any, metrics: Any, *args: Any, **kwargs: Any) -> Any:
            optimizer = schedules.optimizer_of(self)
            run.note("metric", optimizer=optimizer, step=run.step, value=float(metrics), line=run.line())
            return original(self, metrics, *args, **kwargs)

        return step

    replace(LRScheduler, "__init__", make_init)
    replace(ReduceLROnPlateau, "step", make_step)
