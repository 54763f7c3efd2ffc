"""Resources of a process, of which an implementation must leave none behind."""

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

MEMORY = ("bytes", "objects")
"""Memory that the system does not count: bytes of arrays, and Python's small objects."""
MANY = 40
"""Calls in a round from which on one small object for each shows, and fewer show all else."""
GRAIN = 32_000
"""Bytes of an array that may be left behind, and so leaves a trace in the memory of the process."""
_OPEN = ("sockets and pipes", "threads", "child processes")
"""The resources that close() can release even if arrays or handles are still in use."""
_PATIENCE = 0.2
"""Seconds to wait for threads and connections that are ending."""
_UNDER_WAY = 0.5
"""Seconds for messages that were sent, and that a slower rank has not yet taken: until then they are this rank's memory."""


@cache
def count_resources_at_start() -> Mapping[str, int]:
    """The releasable resources at the first call in this process: before connect()."""
    named_resources_at_start()
    found = _held()
    return {name: found[name] for name in _OPEN if name in found}


@cache
def named_resources_at_start() -> frozenset[Segment]:
    """Shared memory that was there under a name at the first call in this process: before connect()."""
    return frozenset(all_named_memory())


def count_resources(before: Mapping[str, int] | None = None, calls: int = 0) -> dict[str, int]:
    """Numbers of threads, descriptors and the like, and the bytes that the process has allocated.

    With more than `before` it looks again for a moment: threads and processes may take time to end. So it does, with `calls`
    since then, where there is as much more memory as if each of them had left something.
    """
    found, begun = _collected(), time.monotonic()
    while before is not None:
        more = {name: found[name] - before[name] for name in before}
        ending = any(by > 0 for name, by in more.items() if name not in MEMORY)
        full = any(by >= left_by_each_call(name, calls) for name, by in more.items() if name == _told_by(calls))
        if time.monotonic() - begun > max(ending * _PATIENCE, full * _UNDER_WAY):
            break
        time.sleep(0.005)
        found = _collected()
    return found


def _collected() -> dict[str, int]:
    """Without what Python keeps of small objects for the next ones, as for those of the look before."""
    gc.collect()
    return _held()


def _told_by(calls: int) -> str | None:
    """The kind of memory in which so many calls show a leak of each."""
    return None if not calls else "objects" if calls >= MANY else "bytes"


def left_by_each_call(name: str, calls: int) -> int:
    """How many more there are at least if each of these calls leaves one, or nearly each, for some may be about to end."""
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
        found["sockets and pipes"] = sum(map(_has_other_end, Path("/proc/self/fd").iterdir()))
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
    """Bytes in use of what malloc gave, to NumPy and torch too; none where the C library does not tell.

    tracemalloc would slow the process down, and has crashed it where other threads were at work.
    """
    if _mallinfo2 is None:
        return {}
    found = _mallinfo2()
    return {"bytes": found.uordblks + found.hblkhd}


def _entries(folder: str) -> int:
    return sum(1 for _ in Path(folder).iterdir())


def _has_other_end(descriptor: Path) -> bool:
    try:
        return str(descriptor.readlink()).startswith(("socket:", "pipe:"))
    except OSError:  # that of the folder itself
        return False
