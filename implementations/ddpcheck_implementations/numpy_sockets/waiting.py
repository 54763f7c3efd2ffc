"""How a rank waits for another that is about to be ready: it looks again and again, but takes the processor from nobody."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

_LOOKING, _BUSY = 0.002, 50e-6
"""Seconds of offering the processor; who gets it back only after so long is in somebody's way, and had better sleep."""
_TAKEN, _SHY = 500e-6, 0.05
"""Who gets it back only after so long has lost it to a program that is no rank: it offers nothing for a while."""


class Looks:
    """One rank's. It spins so many times before it offers its processor."""

    def __init__(self, spins: int) -> None:
        self._spins = spins
        self._shy_until = 0.0

    def __call__(self) -> Iterator[None]:
        """Go on as long as it is worth while to look: without a pause, then while nobody else has use for this processor.

        After that sleep until woken, which takes longer than all of this if the processor has gone to sleep too.
        """
        for _ in range(self._spins):
            yield
        start = now = time.monotonic()
        # before Python 3.12 sched_yield keeps the interpreter to itself
        alone = now > self._shy_until and threading.get_ident() == threading.main_thread().ident
        while now - start < _LOOKING:
            if alone:
                os.sched_yield()
            else:
                time.sleep(0)  # some 50 microseconds
            yield
            before, now = now, time.monotonic()
            if now - before > _BUSY:
                if now - before > _TAKEN:
                    self._shy_until = now + _SHY
                return


def fits(ranks: int) -> bool:
    """Whether so many ranks have a processor each. Otherwise the one that is waited for may need this rank's."""
    return ranks <= len(os.sched_getaffinity(0))
