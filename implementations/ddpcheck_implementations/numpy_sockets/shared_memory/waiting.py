"""Waiting for another rank of this host: by polling while no other thread needs the processor, then asleep.

A sleeping rank is woken through a pipe, whose write end the other ranks of its host open through /proc.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Iterator
from itertools import chain

_POLL_SECONDS, _OVERSUBSCRIBED_POLL_SECONDS = 0.002, 50e-6
"""Duration of polling. Where ranks share processors, a polling rank keeps others from moving to its processor."""
_CONTENDED_SECONDS = 50e-6
"""After a yield of this length another thread needs the processor: the rank sleeps."""
_PREEMPTED_SECONDS, _NO_YIELD_SECONDS = 500e-6, 0.05
"""After a yield of the first length, another program used the processor: the rank does not yield for the second length."""


class Polling:
    """An iterator factory for the polling loops of one rank, which waits for one thing at a time.

    A loop spins `spins` times (never if `oversubscribed`), then yields the processor between looks.
    """

    def __init__(self, spins: int, *, oversubscribed: bool = False) -> None:
        self._spins = range(0 if oversubscribed else spins)
        self._seconds = _OVERSUBSCRIBED_POLL_SECONDS if oversubscribed else _POLL_SECONDS
        self._main = threading.main_thread().ident
        self._yielded = self._until = self._no_yield_until = 0.0

    def __call__(self) -> Iterator[object]:
        """Iterate while polling pays: first without a pause, then while no other thread needs this processor.

        After that the caller sleeps until woken. A wake-up takes longer than all polling if the processor sleeps too.
        """
        self._yielded, self._until = math.inf, time.monotonic() + self._seconds
        return chain(self._spins, iter(self._yield_processor, False))

    def _yield_processor(self) -> bool:
        """Yield the processor once; False if the last yield took too long, or the time for polling is over."""
        now = time.monotonic()
        away, self._yielded = now - self._yielded, now
        if away > _CONTENDED_SECONDS or now > self._until:
            if away > _PREEMPTED_SECONDS:
                self._no_yield_until = now + _NO_YIELD_SECONDS
            return False
        if now > self._no_yield_until and threading.get_ident() == self._main:
            os.sched_yield()  # before Python 3.12 it keeps the interpreter lock
        else:
            time.sleep(0)  # some 50 microseconds
        return True


def enough_processors(ranks: int) -> bool:
    """Whether each rank can have a processor of its own. If not, the awaited rank may need this one's."""
    return ranks <= len(os.sched_getaffinity(0))


class WakeUpPipe:
    """The pipe through which other ranks wake this one. They need this process's id, and `descriptor`."""

    def __init__(self) -> None:
        self._pipe, self.descriptor = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def fileno(self) -> int:
        """Return the read end, which is readable after a wake-up."""
        return self._pipe

    def drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._pipe, 4096)

    def close(self) -> None:
        os.close(self._pipe)
        os.close(self.descriptor)


class WakeUpSender:
    """The write end of another rank's WakeUpPipe. OSError if it cannot be opened."""

    def __init__(self, process: int, descriptor: int) -> None:
        self._pipe = os.open(f"/proc/{process}/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def wake(self) -> None:
        with contextlib.suppress(OSError):  # the pipe is full of wake-ups, or the rank is gone
            os.write(self._pipe, b"\0")

    def close(self) -> None:
        os.close(self._pipe)
