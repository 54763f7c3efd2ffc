"""Finds and kills processes that ranks left behind: daemons in a session of their own, whose parent has ended.

A process that executed a program has inherited the environment, with a mark of its run. A process that was only forked
holds the memory files of its rank, open for writing. Each is found, unless it has removed both. The driver only reads these
files, so its own children, which hold all its files until they execute their program, are not found.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from .process_handles import end_process, open_process, wait_for_end

RUN = "DDPCHECK_RUN"
"""The variable that marks all processes of one run of a program."""
_START_TIME = 19
"""The index of the start time, in clock ticks since boot, after the process name in /proc/PID/stat."""
_END_WITHIN = 5.0

Inode = tuple[int, int]


def clock_ticks() -> int:
    """The present time on the clock of start times; 0 if the system does not provide it."""
    with suppress(OSError, ValueError):
        seconds = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
        return int(seconds * os.sysconf("SC_CLK_TCK")) - 1
    return 0


def kill_leftover_processes(since: int, mark: str, files: Collection[Inode] = ()) -> int:
    """Kill all processes, except this one, that have started `since` and have the `mark` (NAME=value) in their
    environment or one of these files open for writing. Returns their number when they have ended.
    """
    limit, count = time.monotonic() + _END_WITHIN, 0
    while handles := _leftover_processes(since, mark, files):  # again, since one may have started another meanwhile
        for handle in handles:
            end_process(handle)
        for handle in handles:
            wait_for_end(handle, max(0.0, limit - time.monotonic()))
            os.close(handle)
        count += len(handles)
        if time.monotonic() > limit:  # the kernel does not let go of one
            break
    return count


def _leftover_processes(since: int, mark: str, files: Collection[Inode]) -> list[int]:
    """Handles of these processes (process_handles.py), none on systems other than Linux."""
    if sys.platform != "linux":
        return []
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid() or _began(entry) < since:
            continue
        handle = open_process(int(entry.name))  # before the check, so that it refers to the same process
        if handle is None:
            continue
        if _has(entry, mark.encode(), files):
            found.append(handle)
        else:
            os.close(handle)
    return found


def _began(process: Path) -> int:
    try:
        return int((process / "stat").read_bytes().rpartition(b")")[2].split()[_START_TIME])
    except (OSError, IndexError, ValueError):
        return -1


def _has(process: Path, mark: bytes, files: Collection[Inode]) -> bool:
    with suppress(OSError):
        if mark and mark in (process / "environ").read_bytes().split(b"\0"):
            return True
    with suppress(OSError):
        for entry in (process / "fd").iterdir() if files else ():
            with suppress(OSError):
                found = entry.stat()
                if (found.st_dev, found.st_ino) in files and entry.lstat().st_mode & stat.S_IWUSR:
                    return True
    return False
