"""What a parameter's moving average would be if its last update had gone wrong in a known way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..diagnosis import Evidence
from ..values import Array


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
        known = tuple((sentence, array[rank]) for sentence, array in self._alternatives(size))
        return Evidence(size, alternatives=known, precision=False)

    def _alternatives(self, size: int) -> Iterator[tuple[str, Array]]:
        late = self._mixed(self.decay, self.old)
        yield "it was not updated, or before the step that it should take up: one step late", late
        yield "it was not updated", self.average
        yield "it is the parameter itself: a view of it, or never moved by less", self.new
        yield "the weights of the average and of the parameter are swapped", self._mixed(1 - self.decay)
        yield "it was updated twice", self._mixed(self.decay**2)
        before = "it was updated before the step, too: by backwards, and not by steps only"
        yield before, self.decay * late + (1 - self.decay) * self.new
        for dtype, words in ((np.float16, "float16"), (np.float32, "float32")):
            yield f"it is held in {words}", self._mixed(self.decay).astype(dtype).astype(np.float64)
        if size > 1:
            yield "its decay is raised to the world size: updated once for each rank", self._mixed(self.decay**size)
        for steps in (self.steps - 1, self.steps):
            warm = min(self.decay, (1 + steps) / (10 + steps))
            yield "its decay warms up, and is not the one that was asked for", self._mixed(warm)
            yield (
                "its decay warms up, and is taken for its opposite, the weight of the parameter",
                self._mixed(1 - warm),
            )

    def _mixed(self, decay: float, parameter: Array | None = None) -> Array:
        return decay * self.average + (1 - decay) * (self.new if parameter is None else parameter)
