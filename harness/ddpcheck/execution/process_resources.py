"""Counts resources of a process that an implementation must release."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from ..launchers.mpi_segments import Segment, all_named_memory
from ..launchers.process_handles import open_files

MEMORY = ("bytes", "objects")
"""Memory that the system does not count: bytes of arrays, and Python's small objects."""
MANY = 40
"""In rounds of so many calls, one small object left by each call is measurable; other resources show in shorter rounds."""
GRAIN = 32_000
"""Bytes of an array that is large enough to show in the memory of the process if a call leaves it behind."""
_OPEN = ("sockets and pipes", "threads", "child processes")
"""The resources that close() can release even if arrays or handles are still in use."""
_PATIENCE = 0.2
"""Seconds to wait for ending threads and connections."""
_IN_FLIGHT = 0.5
"""Seconds for a slower rank to receive messages; until then their bytes are in this rank's memory."""


@cache
def count_resources_at_start() -> Mapping[str, int]:
    """Count the resources that close() can release, at the first call in this process, which comes before connect()."""
    named_resources_at_start()
    found = _held()
    return {name: found[name] for name in _OPEN if name in found}


@cache
def named_resources_at_start() -> frozenset[Segment]:
    """Return named shared memory at the first call in this process, which comes before connect()."""
    return frozenset(all_named_memory())


def count_resources(before: Mapping[str, int] | None = None, calls: int = 0) -> dict[str, int]:
    """Count threads, descriptors and other resources, and the bytes that the process has allocated.

    before: earlier counts. If counts are higher, count again for a moment, since threads and processes take time to
    end. calls: the calls since `before`; if memory has grown as if each call leaked, count again, too.
    """
    found, began = _count_after_collection(), time.monotonic()
    while before is not None:
        more = {name: found[name] - before[name] for name in before}
        ending = any(by > 0 for name, by in more.items() if name not in MEMORY)
        full = any(by >= left_by_each_call(name, calls) for name, by in more.items() if name == _leak_measure(calls))
        if time.monotonic() - began > max(ending * _PATIENCE, full * _IN_FLIGHT):
            break
        time.sleep(0.005)
        found = _count_after_collection()
    return found


def _count_after_collection() -> dict[str, int]:
    """Count after a garbage collection."""
    gc.collect()
    return _held()


def _leak_measure(calls: int) -> str | None:
    """Return the kind of memory that shows whether each of `calls` calls leaks; None for no calls."""
    return None if not calls else "objects" if calls >= MANY else "bytes"


def left_by_each_call(name: str, calls: int) -> int:
    """Return the least growth if each of `calls` calls leaves one resource; one less, since one may be about to end."""
    return (GRAIN if name == "bytes" else 1) * (calls - 1)


def _held() -> dict[str, int]:
    found = _allocated() | {"objects": sys.getallocatedblocks()}
    with suppress(OSError):  # not Linux
        with Path("/proc/self/maps").open(encoding="utf-8", errors="replace") as maps:
            found["segments of shared memory"] = sum(
                any(name in line for name in ("/dev/shm/", "/memfd:", "/SYSV")) for line in maps
            )
        found["threads"] = _entries("/proc/self/task")
        found["descriptors"] = _entries("/proc/self/fd")
        found["sockets and pipes"] = sum(name.startswith(("socket:", "pipe:")) for _, name in open_files())
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
        found["child processes"] = len(children.split())
    return found


class _Mallinfo2(ctypes.Structure):
    """As in glibc's malloc.h."""

    _names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in _names.split()]


_mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
if _mallinfo2 is not None:
    _mallinfo2.restype = _Mallinfo2


def _allocated() -> dict[str, int]:
    """Return the bytes that malloc has allocated, also for NumPy and torch; empty if the C library has no mallinfo2.

    tracemalloc would slow the process down, and has crashed it while other threads ran.
    """
    if _mallinfo2 is None:
        return {}
    found = _mallinfo2()
    return {"bytes": found.uordblks + found.hblkhd}


def _entries(folder: str) -> int:
    return sum(1 for _ in Path(folder).iterdir())
