"""The time of a whole sweep, and the points to measure again: the costs of all points are known after the first
launch.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Allowance:
    """A number of seconds from now. The first launch measures all points once; the others repeat the cheapest that
    fit.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + seconds
        self._each: dict[str, float] = {}
        self._costs: dict[str, float] = {}
        self._repeated: set[str] | None = None

    @property
    def left(self) -> float:
        """The seconds left; negative if it took longer."""
        return self._end - self._clock()

    def took(self, name: str, seconds: float, again: int) -> None:
        """Record the cost of a point in the first launch, and the number of other launches that should measure it."""
        self._each[name] = seconds
        if again > 0:
            self._costs[name] = seconds * again

    def decide(self, fixed: float) -> float:
        """Choose the points to measure again if starts of ranks take `fixed` seconds in all; returns seconds for
        both.
        """
        self._repeated = set()
        total = fixed
        for name, cost in sorted(self._costs.items(), key=lambda item: item[1]):
            if total + cost > self.left:
                break
            total += cost
            self._repeated.add(name)
        return total if self._repeated else 0.0

    def fits(self, name: str) -> bool:
        """Whether there is time for the point now, at its earlier cost: the machine may have become slower."""
        return self.left > self._each.get(name, 0.0)

    def grants(self, name: str) -> bool:
        """Whether the point is to be measured in the current launch."""
        return self.left > 0 if self._repeated is None else name in self._repeated
