"""Runs the operations of operations/timing.py on one rank: calls, and reads the clock."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..contract.adapter import Batch
from ..operations.timing import MeasureCollective, MeasureSteps
from ..seeded_values import Array
from .sent_bytes import sent_by_connection

Counts = Callable[[], Mapping[str, int]] | None
Call = Callable[[], Any]

_PERIOD = 1_048_573


def measured_collective(
    comm: Any, counts: Counts, operation: MeasureCollective, rank: int, world_size: int
) -> dict[str, Any]:
    """The values that a MeasureCollective yields."""
    work = _Work(comm, operation, rank, world_size)
    clock, meet, call, calls = time.monotonic, work.meet, work.call, operation.calls
    wrong = work.wrong()
    work.settle()
    for _ in range(operation.warmups):
        meet()
        for _ in range(calls):
            call()
    counted = _Counted(counts)
    counted.begin()
    if operation.iterations:
        call()
    counted.end()
    begin, end = np.empty((2, operation.iterations))
    cpu, queued = 0.0, _queued()
    for iteration in range(operation.iterations):
        meet()
        started = time.process_time()
        entered = clock()
        for _ in range(calls):
            call()
        left = clock()
        cpu += time.process_time() - started
        begin[iteration], end[iteration] = entered, left
    return {
        "begin": begin,
        "end": end,
        "queued": _since(queued),
        "wrong": wrong + (work.wrong() if operation.iterations else 0),
        "cpu": cpu,
        "counts": counted.by_itself,
        "sent": counted.by_kernel,
    }


def measured_steps(replica: Any, counts: Counts, operation: MeasureSteps, batch: Batch) -> dict[str, Any]:
    """The values that a MeasureSteps yields."""
    begin, backward_end, end = np.empty((3, operation.iterations))
    clock = time.monotonic
    counted = _Counted(counts)
    started, queued = 0.0, None
    for step in range(-operation.warmups, operation.iterations):
        if not step:
            counted.begin()
            started, queued = time.process_time(), _queued()
        entered = clock()
        replica.zero_grad()
        with nullcontext() if operation.synced else replica.no_sync():
            replica.backward(batch)
        communicated = clock()
        replica.step()
        if step >= 0:
            begin[step], backward_end[step], end[step] = entered, communicated, clock()
    spent = time.process_time() - started
    counted.end()
    return {
        "begin": begin,
        "backward_end": backward_end,
        "end": end,
        "cpu": spent,
        "queued": _since(queued),
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "counts": counted.by_itself,
        "sent": counted.by_kernel,
        "timeline": _timeline(replica),
    }


def _queued() -> float | None:
    """Seconds that this thread was ready and waited for a core; None if the kernel does not tell."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, IndexError):
        return None


def _since(before: float | None) -> float | None:
    now = _queued()
    return None if before is None or now is None else now - before


def _timeline(replica: Any) -> list[list[Any]] | None:
    told: Any = getattr(replica, "timeline", None)
    return None if told is None else [list(span) for span in told()]


class _Work:
    """One collective on arrays with known results: small integers, different on each rank and at each place."""

    def __init__(self, comm: Any, operation: MeasureCollective, rank: int, world_size: int) -> None:
        self._operation, self._rank, self._world_size = operation, rank, world_size
        self._comm = comm
        count, dtype = operation.count, operation.dtype
        own = {"all_gather": count // world_size, "barrier": 0}.get(operation.collective, count)
        array = comm.empty((own,), dtype) if operation.in_place else np.empty(own, dtype)
        self._array: Array = array
        self._own = pattern(own, rank, dtype)
        # a call that is not in place keeps this as its argument, so a change by the implementation shows
        array[...] = self._own
        token = np.zeros(1, dtype)
        barrier = getattr(comm, "barrier", None)
        self.meet: Call = barrier if callable(barrier) else partial(comm.all_reduce, token)
        self.call = self._call()

    def settle(self) -> None:
        """Set an array that is reduced in place to zeros, which sums keep. Other numbers would grow until they
        overflow, and rewriting them before each call would leave other caches than a loop of calls.
        """
        if self._operation.in_place:
            self._array.fill(0)

    def wrong(self) -> int:
        """The number of wrong elements after one call on this rank."""
        in_place = self._operation.in_place
        if in_place:
            self._array[...] = self._own
        self.meet()
        result = self.call()
        got = self._array if in_place else result
        expected = self._expected()
        return 0 if expected is None else int(np.count_nonzero(np.ravel(got) != expected))

    def _call(self) -> Call:
        """The call with all names looked up in advance, so that only the collective is measured."""
        comm, array, rank, last = self._comm, self._array, self._rank, self._world_size - 1

        def pass_on() -> Any:
            """Send from the first rank to the last, and back."""
            if rank == 0:
                comm.send(array, last)
                return comm.recv(array, last)
            if rank == last:
                comm.send(comm.recv(array, 0), 0)
            return None

        match self._operation.collective:
            case "barrier":
                return self.meet
            case "send_recv":
                return pass_on
            case "broadcast":
                return partial(comm.broadcast, array, 0)
            case "all_reduce" if self._operation.in_place:
                return partial(comm.all_reduce_in_place, array)
            case name:
                return partial(getattr(comm, name), array)

    def _expected(self) -> Array | None:
        """The expected result of a call on this rank, flat; None without a result."""
        operation, size = self._operation, self._world_size
        count, dtype = operation.count, operation.dtype
        if operation.collective == "barrier":
            return None
        if operation.collective == "send_recv":
            return self._own if self._rank == 0 else None
        if operation.collective == "broadcast":
            return pattern(count, 0, dtype)
        if operation.collective == "all_gather":
            return np.concatenate([pattern(count // size, rank, dtype) for rank in range(size)])
        total = pattern(count, 0, dtype)
        for rank in range(1, size):
            total += pattern(count, rank, dtype)
        if operation.collective == "reduce_scatter":
            share = count // size
            return total[share * self._rank : share * (self._rank + 1)]
        return total


def pattern(count: int, rank: int, dtype: str) -> Array:
    """Integers of [-8, 8] that differ from rank to rank: sums over up to 1,024 ranks are exact in float16 or wider.

    Long arrays repeat after a prime number of elements, so that making them takes no longer than comparing, and no
    block of a collective is as long as the period.
    """
    period = np.arange(min(count, _PERIOD), dtype=np.uint32)
    base = (period * np.uint32(2654435761) >> np.uint32(7)) + np.uint32(13 * rank + 5)
    values: Array = (base % np.uint32(17)).astype(dtype)
    values -= 8
    return values if count <= _PERIOD else np.resize(values, count)


class _Counted:
    """Traffic from begin() to end(): by_itself, the implementation's counts; or by_kernel, the bytes sent over TCP, if the
    implementation counts nothing. Both are None without begin().
    """

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self.by_itself: dict[str, int] | None = None
        self.by_kernel: int | None = None
        self._before: dict[str, int] | None = None

    def begin(self) -> None:
        self._before = self._read()

    def end(self) -> None:
        if self._before is None:
            return
        growth = {name: count - self._before.get(name, 0) for name, count in self._read().items()}
        if self._counts is not None:
            self.by_itself = growth
        else:
            self.by_kernel = sum(growth.values())

    def _read(self) -> dict[str, int]:
        if self._counts is not None:
            return {name: int(count) for name, count in self._counts().items()}
        return {name: count for name, (count, _) in sent_by_connection().items()}
