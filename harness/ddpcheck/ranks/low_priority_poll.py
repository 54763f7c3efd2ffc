"""Waits in the driver without taking a processor from the ranks."""

from __future__ import annotations

import os
import select
import sys
from contextlib import suppress

if sys.platform == "linux":

    def poll(poller: select.poll, milliseconds: float) -> list[tuple[int, int]]:
        """Return poller.poll(); the driver's thread resumes once a processor is free.

        With SCHED_OTHER a thread that wakes up preempts a rank that has run for longer, and all other ranks then wait for that
        rank. A SCHED_BATCH thread preempts nobody. The policy is set for this wait only: child processes inherit it.
        """
        if os.sched_getscheduler(0) != os.SCHED_OTHER:  # the user has chosen another policy
            return poller.poll(milliseconds)
        try:
            _choose(os.SCHED_BATCH)
            return poller.poll(milliseconds)
        finally:
            _choose(os.SCHED_OTHER)

    def _choose(policy: int) -> None:
        with suppress(OSError):  # a sandbox may forbid the policy; a Job then takes slightly longer
            os.sched_setscheduler(0, policy, os.sched_param(0))

else:

    def poll(poller: select.poll, milliseconds: float) -> list[tuple[int, int]]:
        """Return poller.poll()."""
        return poller.poll(milliseconds)
