"""Collectives that are wrong while another call is pending, while a rank is late or dead, or for large arrays only."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.circumstances import larger
from ..engine.collective_effects import instead, own_value, skipped, zero_from
from ..engine.collectives import Call, all_reduce, barrier, broadcast, not_on_root, op, others_pending
from ..engine.fault import Fault, table
from ..facet_seams import Group, PassThrough, collectives
from .memory import Later

LARGE = "check_collectives_are_correct_for_large_arrays"
ASYNC = "check_pending_all_reduces_keep_their_own_results"
DEAD = "check_dead_rank_raises_on_every_other_rank"
CALLS = "check_oldest_handle_keeps_its_result"
LATE_WAIT = "check_wait_returns_after_every_rank_has_contributed"
MEGABYTE = 1 << 20


@instead
def errors_ignored(call: Call) -> None:
    with suppress(Exception):
        call.run()


class Pending(PassThrough):
    """Counts pending asynchronous all-reduces."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.pending = 0

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Any:
        handle = self.comm.all_reduce_async(array, op, group=group)
        self.pending += 1

        def wait() -> Array:
            self.pending -= 1
            return np.asarray(handle.wait())

        return Later(wait)


@collectives("handles-numbered-by-a-byte", CALLS, cause="handle-forgotten")
class NumberedByAByte(PassThrough):
    """Handles are numbered in one byte, so the 257th takes and removes the result of the first."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.begun = 0
        self.found: dict[int, Any] = {}

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Any:
        number = self.begun % 256
        self.begun += 1
        self.found[number] = handle = self.comm.all_reduce_async(array, op, group=group)

        def wait() -> Array:
            result = np.asarray(handle.wait())
            return result if self.found.pop(number, None) else np.zeros_like(result)

        return Later(wait)


@collectives("only-the-first-handle-waits", LATE_WAIT, cause="not-reduced")
class OnlyTheFirstWaits(Pending):
    """wait() returns too early if the call started while another one was pending."""

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Any:
        first, own = self.pending == 0, array.copy()
        handle, results = super().all_reduce_async(array, op, group=group), [own]
        if first:
            return handle
        fetching = threading.Thread(target=lambda: results.append(handle.wait()), daemon=True)

        def wait() -> Array:
            fetching.start()
            fetching.join(0.03)
            return results[-1]

        return Later(wait)


@collectives("one-second-is-enough", "check_late_ranks_do_not_change_results", cause="gave-up-waiting")
class OneSecond(PassThrough):
    """All-reduce raises a timeout error when a rank is one second late."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        handle, done = self.comm.all_reduce_async(array, op, group=group), threading.Event()
        results: list[Array] = []

        def fetch() -> None:
            try:
                results.append(np.asarray(handle.wait()))
            finally:
                done.set()

        threading.Thread(target=fetch, daemon=True).start()
        if not done.wait(1.0):
            raise TimeoutError("a peer has timed out")
        return results[0] if results else np.asarray(handle.wait())


@collectives("wait-ends-after-a-second", LATE_WAIT, cause="wait-returns-early")
class WaitEnds(PassThrough):
    """wait() gives up after one second and returns an unfinished result."""

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Any:
        handle, results = self.comm.all_reduce_async(array, op, group=group), [array.copy()]

        def wait() -> Array:
            fetching = threading.Thread(target=lambda: results.append(handle.wait()), daemon=True)
            fetching.start()
            fetching.join(1.0)
            return results[-1]

        return Later(wait)


@collectives("wait-for-the-dead", DEAD, cause="death-unnoticed")
class WaitsForTheDead(PassThrough):
    """A pending all-reduce is retried forever when its connection breaks."""

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Any:
        handle = self.comm.all_reduce_async(array, op, group=group)

        def wait() -> Array:
            while True:
                try:
                    return np.asarray(handle.wait())
                except Exception:
                    time.sleep(0.01)

        return Later(wait)


# fmt: off
table(
    globals(),
    Fault("large-broadcast-cut", "Broadcast fills only the first MiB on the receiving ranks.",
          where=broadcast & not_on_root, effect=zero_from(lambda result: MEGABYTE // result.itemsize),
          caught_by=LARGE, cause="never-written", world_size=3),
    Fault("large-maximum-not-reduced", "A maximum of more than 100,000 elements returns the rank's own array.",
          where=all_reduce & op("max") & larger(100_000), effect=own_value,
          caught_by=LARGE, cause="not-reduced", world_size=3),
    Fault("barrier-passed-while-pending", "Barrier does nothing while an asynchronous call is pending.",
          where=barrier & others_pending, effect=skipped,
          caught_by=ASYNC, cause="barrier-does-not-block"),
    Fault("barrier-without-the-dead", "Barrier ignores errors, so it returns although a rank is dead.",
          where=barrier, effect=errors_ignored,
          caught_by="check_collectives_never_complete_with_a_dead_rank", cause="error-swallowed", world_size=3),
)
# fmt: on
