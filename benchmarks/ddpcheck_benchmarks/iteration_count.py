"""Numbers of iterations, decided in the driver from a first measurement, so that all ranks use the same numbers."""

from __future__ import annotations

from dataclasses import dataclass

_SHORT = 5e-6  # in shorter times the clock itself is too large a part
_LONG_ENOUGH = 20e-6
_LARGE = 32 << 20


@dataclass(frozen=True, slots=True)
class Effort:
    """launches: how often ranks are started. budget: seconds to measure one point in one launch.

    large_launches: the number of launches with messages above 32 MiB, and models of as many bytes. step_budget: seconds
    for each burst of training steps. crowded_launches: the most launches if there are more ranks than cores.
    """

    launches: int = 5
    budget: float = 0.1
    least: int = 5
    most: int = 200
    large_launches: int = 2
    step_budget: float = 0.25
    crowded_launches: int = 2

    def includes(self, size: int, launch: int) -> bool:
        return size <= _LARGE or launch < self.large_launches

    def calls(self, seconds: float) -> int:
        """The number of calls in one iteration, from the seconds of one call."""
        return 1 if seconds >= _SHORT else round(_LONG_ENOUGH / max(seconds, 1e-7))

    def iterations(self, seconds: float) -> int:
        """The number of iterations, from the seconds of one; three if one takes longer than the whole budget."""
        least = self.least if seconds * self.least < 2 * self.budget else 3
        return max(least, min(self.most, int(self.budget / max(seconds, 1e-9))))

    def steps(self, seconds: float) -> int:
        """The number of training steps in a burst, from the seconds of one."""
        return max(3, min(50, int(self.step_budget / max(seconds, 1e-9))))
