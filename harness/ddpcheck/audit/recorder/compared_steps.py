"""Steps in which gradients and parameters of ranks are compared: all recorded steps, then few, so that later steps cost little.

After the recorded steps, a step is compared in five cases:

- its number is that of the recorded steps times a power of two;
- it makes calls that no step before has made, or a module is called for the first time;
- an epoch of training begins or ends, and the last compared one is long ago;
- its loss is not finite;
- the script's run is to be compared with a resumed one.

Nothing here depends on time, so that all ranks choose the same steps. A step that only some ranks digest is not compared.
"""

from __future__ import annotations

import functools
from typing import Any

from ..recorded_process import Run

_CHANGES = 32
"""The most steps compared because of new calls: a script may make other calls in every step."""
_APART = 32
"""The fewest steps between two comparisons at epochs, in a long run: one costs about a quarter of a small step."""


class ComparedSteps:
    """The steps of this run that are compared."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._until = -1
        self._epoch = 0
        self._known: set[Any] = set()
        self._changes = 0

    def now(self) -> bool:
        """Whether the step in progress is compared."""
        run = self.run
        always = run.full or run.mirrors or run.settings.resumes
        return always or run.step <= self._until or self._in_series(run.step)

    def _in_series(self, step: int) -> bool:
        times, rest = divmod(step, max(self.run.settings.steps, 1))
        return rest == 0 and times & (times - 1) == 0

    def compare(self) -> None:
        """Compare the step in progress, and the next one, which uses the parameters that this one makes."""
        self._until = self.run.step + 1

    def change(self) -> None:
        """Note something that happens for the first time. While all is recorded, everything is new."""
        if self.run.full:
            return
        self._changes += 1
        if self._changes <= _CHANGES:
            self.compare()

    def step(self, *call: Any) -> bool:
        """Whether the step that an optimizer is about to take is compared. call: its difference from other steps."""
        calls = (*call, frozenset(self.run.calls))
        if calls not in self._known:
            self._known.add(calls)
            self.change()
        return self.now()

    def epoch(self) -> None:
        """Note that an epoch of training begins, or its last batch is given."""
        step = self.run.step
        if step - self._epoch >= min(_APART, max(step // 4, 1)):
            self._epoch = step
            self.compare()


@functools.cache
def of(run: Run) -> ComparedSteps:
    """The compared steps of this run."""
    return ComparedSteps(run)
