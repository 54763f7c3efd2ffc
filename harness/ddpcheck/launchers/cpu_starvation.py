"""Tells slow processes from processes without a processor: the kernel counts how long each thread was ready and
waited.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

_STARVED = 0.65
"""The part of the time for which a thread must be ready without a processor until the machine counts as too slow: all then
takes three times as long. Four ranks that busy-wait for each other on two processors have one for half of the time.
"""
_LOOK = 2.0
_TIMES = 10

Snapshot = tuple[float, Mapping[int, float]]
"""The time of the snapshot, and how long each thread had waited for a processor until then."""


def snapshot(threads: Iterable[Mapping[int, float]]) -> Snapshot:
    """threads: the waiting times of each process's threads, from queued()."""
    return time.monotonic(), {thread: seconds for each in threads for thread, seconds in each.items()}


def starved(before: Snapshot, now: Snapshot) -> bool:
    """Whether some thread was ready most of the time, but got little of a processor."""
    more = (seconds - before[1].get(thread, 0.0) for thread, seconds in now[1].items())
    return max(more, default=0.0) > _STARVED * (now[0] - before[0])


class Patience:
    """A time limit that is extended while processes get no processor, up to ten times."""

    def __init__(self, seconds: float) -> None:
        start = time.monotonic()
        self._look = min(_LOOK, seconds)
        self._limit, self._last = start + seconds, start + _TIMES * seconds
        self._before: Snapshot | None = None

    @property
    def left(self) -> float:
        """Seconds until the next call of is_over() that can be true; at least 0."""
        return max(0.0, self._limit - time.monotonic())

    def is_over(self, threads: Callable[[], Iterable[Mapping[int, float]]]) -> bool:
        """Whether the limit has passed and no thread was starved in the measurement since.

        threads: the waiting times of each process's threads, from queued(). The first measurement begins at the limit
        and takes two seconds, or as long as the limit if that is shorter.
        """
        now = time.monotonic()
        if now < self._limit:
            return False
        seen = snapshot(threads())
        if now > self._last or (self._before is not None and not starved(self._before, seen)):
            return True
        self._before, self._limit = seen, now + self._look
        return False
