"""How a rank waits for another that is about to be ready: it looks again and again, but takes the processor from nobody."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator
from itertools import chain

_LOOKING, _CROWDED = 0.002, 50e-6
"""Seconds of offering the processor. Where ranks share processors, one that looks on keeps others from moving to its own."""
_BUSY = 50e-6
"""Who gets it back only after so many seconds is in somebody's way, and had better sleep."""
_TAKEN, _SHY = 500e-6, 0.05
"""Who gets it back only after so long has lost it to a program that is no rank: it offers nothing for a while."""


class Polling:
    """One rank's, for one wait at a time. It spins so many times before it offers its processor; never if it is crowded."""

    def __init__(self, spins: int, *, crowded: bool = False) -> None:
        self._spins = range(0 if crowded else spins)
        self._seconds = _CROWDED if crowded else _LOOKING
        self._main = threading.main_thread().ident
        self._offered = self._until = self._shy_until = 0.0

    def __call__(self) -> Iterator[object]:
        """Go on as long as it is worth while to look: without a pause, then while nobody else has use for this processor.

        After that sleep until woken, which takes longer than all of this if the processor has gone to sleep too.
        """
        self._offered, self._until = math.inf, time.monotonic() + self._seconds
        return chain(self._spins, iter(self._offer, False))

    def _offer(self) -> bool:
        """Offer the processor to others, unless it was away for too long since the last time, for nothing."""
        now = time.monotonic()
        away, self._offered = now - self._offered, now
        if away > _BUSY or now > self._until:
            if away > _TAKEN:
                self._shy_until = now + _SHY
            return False
        if now > self._shy_until and threading.get_ident() == self._main:
            os.sched_yield()  # which keeps the interpreter to itself before Python 3.12
        else:
            time.sleep(0)  # some 50 microseconds
        return True


def fits(ranks: int) -> bool:
    """Whether so many ranks have a processor each. Otherwise the one that is waited for may need this rank's."""
    return ranks <= len(os.sched_getaffinity(0))
