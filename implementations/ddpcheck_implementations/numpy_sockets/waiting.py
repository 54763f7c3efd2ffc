"""How a rank waits for another that is about to be ready: it looks again and again, but takes the processor from nobody."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

_YIELDS, _BUSY = 0.002, 50e-6
"""Seconds of offering the processor; who gets it back only after so long is in somebody's way, and had better sleep."""


def looks(spins: int) -> Iterator[None]:
    """Go on as long as it is worth while to look: `spins` times without a pause, then while nobody else has use for this
    processor. After that sleep until woken, which takes longer than all of this if the processor has gone to sleep too.
    """
    for _ in range(spins):
        yield
    start = now = time.monotonic()
    while now - start < _YIELDS:
        os.sched_yield()
        time.sleep(0)  # before Python 3.12 sched_yield keeps the interpreter to itself
        yield
        before, now = now, time.monotonic()
        if now - before > _BUSY:
            return


def fits(ranks: int) -> bool:
    """Whether so many ranks have a processor each. Otherwise the one that is waited for may need this rank's."""
    return ranks <= len(os.sched_getaffinity(0))
