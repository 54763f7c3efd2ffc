"""Waiting in the driver, without taking a processor from the ranks."""

from __future__ import annotations

import os
import select
import sys
from contextlib import suppress

if sys.platform == "linux":

    def poll(poller: select.poll, milliseconds: float) -> list[tuple[int, int]]:
        """poller.poll(), after which this thread goes on as soon as a processor is free.

        By Linux's usual policy one that wakes up takes the processor of somebody who has run for longer: here of a rank, and
        the others wait until that one is back. A batch thread is not given another's, and is one for this wait only:
        what it starts would inherit that.
        """
        if os.sched_getscheduler(0) != os.SCHED_OTHER:  # somebody has chosen for it
            return poller.poll(milliseconds)
        try:
            _choose(os.SCHED_BATCH)
            return poller.poll(milliseconds)
        finally:
            _choose(os.SCHED_OTHER)

    def _choose(policy: int) -> None:
        with suppress(OSError):  # a sandbox may forbid it: then it takes somewhat longer
            os.sched_setscheduler(0, policy, os.sched_param(0))

else:

    def poll(poller: select.poll, milliseconds: float) -> list[tuple[int, int]]:
        """poller.poll()."""
        return poller.poll(milliseconds)
