"""Hypotheses about a parameter's moving average: mistakes in its last update."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...causes import Cause
from ...causes import updates as causes
from ...diagnosis import Evidence
from ...seeded_values import Array


@dataclass(frozen=True, slots=True)
class Averaged:
    """One update; arrays have the ranks as first axis. average: before it. old, new: the parameter around the step."""

    average: Array
    old: Array
    new: Array
    decay: float
    steps: int

    def evidence(self, expected: Array, rank: int) -> Evidence:
        size = len(self.average)
        known = tuple((cause, array[rank]) for cause, array in self._alternatives(size))
        return Evidence(size, alternatives=known, precision=False)

    def _alternatives(self, size: int) -> Iterator[tuple[Cause, Array]]:
        late = self._mixed(self.decay, self.old)
        yield causes.AVERAGE_LATE(), late
        yield causes.AVERAGE_NOT_UPDATED(), self.average
        yield causes.AVERAGE_IS_PARAMETER(), self.new
        yield causes.AVERAGE_SWAPPED(), self._mixed(1 - self.decay)
        yield causes.AVERAGE_TWICE(), self._mixed(self.decay**2)
        yield causes.AVERAGE_BY_BACKWARDS(), self.decay * late + (1 - self.decay) * self.new
        for dtype in ("float16", "float32"):
            yield causes.AVERAGE_IN(dtype=dtype), self._mixed(self.decay).astype(dtype).astype(np.float64)
        if size > 1:
            yield causes.AVERAGE_PER_RANK(), self._mixed(self.decay**size)
        for steps in (self.steps - 1, self.steps):
            warm = min(self.decay, (1 + steps) / (10 + steps))
            yield causes.AVERAGE_WARMS_UP(), self._mixed(warm)
            yield causes.AVERAGE_WARMS_UP_SWAPPED(), self._mixed(1 - warm)

    def _mixed(self, decay: float, parameter: Array | None = None) -> Array:
        return decay * self.average + (1 - decay) * (self.new if parameter is None else parameter)
