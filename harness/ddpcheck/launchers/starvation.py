"""Is a process slow, or has it got no processor? The kernel counts for how long each thread was ready and had to wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

_STARVED = 0.8
"""The part of the time looked at for which a thread was ready and got no processor, from which on it is the machine that
is slow. Four ranks that wait busily for each other on two processors, and for ever, get one for half of the time.
"""
_LOOK = 2.0
_TIMES = 10

Snapshot = tuple[float, Mapping[int, float]]
"""When it was taken, and for how long each thread had waited for a processor until then."""


def snapshot(threads: Iterable[Mapping[int, float]]) -> Snapshot:
    """threads: those of each process, as queued() has them."""
    return time.monotonic(), {thread: seconds for each in threads for thread, seconds in each.items()}


def starved(before: Snapshot, now: Snapshot) -> bool:
    """Whether some thread was ready to run all the time, but got no processor."""
    more = (seconds - before[1].get(thread, 0.0) for thread, seconds in now[1].items())
    return max(more, default=0.0) > _STARVED * (now[0] - before[0])


class Patience:
    """A time limit that waits longer while processes get no processor, but no longer than ten times as long."""

    def __init__(self, seconds: float) -> None:
        start = time.monotonic()
        self._look = min(_LOOK, seconds)
        self._limit, self._last = start + seconds, start + _TIMES * seconds
        self._before: Snapshot | None = None

    @property
    def left(self) -> float:
        """Seconds until the next call of is_over() that matters; 0 at the least."""
        return max(0.0, self._limit - time.monotonic())

    def is_over(self, threads: Callable[[], Iterable[Mapping[int, float]]]) -> bool:
        """Whether the limit has passed, and no thread was starved when they were looked at since.

        threads: those of each process, as queued() has them. The first look begins at the limit, and takes two seconds, or as
        many as the limit has.
        """
        now = time.monotonic()
        if now < self._limit:
            return False
        seen = snapshot(threads())
        if now > self._last or (self._before is not None and not starved(self._before, seen)):
            return True
        self._before, self._limit = seen, now + self._look
        return False
