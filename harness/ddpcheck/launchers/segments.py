"""Shared memory that MPI makes under a name: ranks that leave in order remove the name, and it stays if they are killed.

What a process has mapped tells which are its own, so that those of other runs are never touched.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from .pids import processes_under

_NAMES = tuple(f"/dev/shm/{name}" for name in ("mpich_shm_", "sm_segment.", "vader_segment.", "Intel_MPI_"))
"""Of MPICH, Open MPI from version 5 on and before, Intel MPI. What others leave is for checks to find."""

Segment = tuple[str, int]
"""Path and inode."""


def segments_of(process: int | str = "self") -> set[Segment]:
    """Those that a process on this host has mapped; none if it is gone."""
    found: set[Segment] = set()
    with suppress(OSError), Path(f"/proc/{process}/maps").open(encoding="utf-8", errors="replace") as maps:
        for line in maps:
            _, _, _, _, inode, *path = line.split()
            if path and path[0].startswith(_NAMES):
                found.add((path[0], int(inode)))
    return found


def segments_under(process: int) -> set[Segment]:
    """Those of a process's children, and theirs."""
    return {segment for child in processes_under(process) for segment in segments_of(child)}


def remove_segments(segments: Iterable[Segment]) -> None:
    """Remove those names that are still there, and still name what they did."""
    for name, inode in segments:
        with suppress(OSError):
            if (path := Path(name)).stat().st_ino == inode:
                path.unlink()
