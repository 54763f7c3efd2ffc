"""Named shared memory of MPI. Ranks that exit normally remove it; it remains if they are killed.

Only files that a rank has mapped, or that nobody can use any more, are removed; segments of other runs are never touched.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_NAMES = tuple(
    f"/dev/shm/{name}" for name in ("mpich_shm_", "ucx_shm_posix_", "sm_segment.", "vader_segment.", "Intel_MPI_")
)
"""Name patterns of MPICH, its UCX, Open MPI (version 5, and earlier) and Intel MPI. Checks find segments of other libraries."""

_SHARED = Path("/dev/shm")

Segment = tuple[str, int]
"""Path and inode."""


def segments_of(process: int | str = "self") -> set[Segment]:
    """The segments that a process on this host has mapped; none if it has ended."""
    found: set[Segment] = set()
    with suppress(OSError), Path(f"/proc/{process}/maps").open(encoding="utf-8", errors="replace") as maps:
        for line in maps:
            _, _, _, _, inode, *path = line.split()
            if path and path[0].startswith(_NAMES):
                found.add((path[0], int(inode)))
    return found


def named_memory() -> set[Segment]:
    """Shared memory that this process has mapped or open, and that has a name."""
    return _of_shared_memory({*map(Path, _mapped()), *_open_files(Path("/proc/self"))})


def all_named_memory() -> set[Segment]:
    """All shared memory on this host that has a name."""
    with suppress(OSError):
        return _of_shared_memory(_SHARED.iterdir())
    return set()


def still_named(segments: Iterable[Segment]) -> set[Segment]:
    """The segments that still have their names."""
    return _of_shared_memory(Path(name) for name, _ in segments) & {*segments}


def _of_shared_memory(paths: Iterable[Path]) -> set[Segment]:
    found: set[Segment] = set()
    for path in paths:
        with suppress(OSError):
            if _SHARED in path.parents:
                found.add((str(path), path.stat().st_ino))
    return found


def _open_files(process: Path) -> set[Path]:
    """Files that a process has open; none if it has ended, or is another user's."""
    found: set[Path] = set()
    with suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with suppress(OSError):  # the folder's own descriptor, or one that was closed meanwhile
                found.add(descriptor.readlink())
    return found


def _mapped() -> list[str]:
    """Paths of files that this process has mapped."""
    with suppress(OSError), Path("/proc/self/maps").open(encoding="utf-8", errors="replace") as maps:
        return [line.split(maxsplit=5)[-1].rstrip() for line in maps]
    return []


def abandoned_segments(since: float) -> set[Segment]:
    """This user's segments of MPI that were made after `since` (as of time.time()), and that no process has open or mapped.

    A rank that is killed while MPI starts leaves one that was in no table when the driver last looked.
    """
    found = {path for path in _SHARED.glob("*") if str(path).startswith(_NAMES) and _is_own_since(path, since)}
    if found:
        for process in Path("/proc").glob("[0-9]*"):
            # open before mapped: a new segment is first open, then mapped, then closed
            found -= _open_files(process)
            found -= {Path(name) for name, _ in segments_of(process.name)}
    return _of_shared_memory(found)


def _is_own_since(path: Path, since: float) -> bool:
    with suppress(OSError):
        found = path.stat()
        return found.st_uid == os.geteuid() and found.st_ctime >= since
    return False


def remove_segments(segments: Iterable[Segment]) -> None:
    """Remove the names that still exist and still refer to the same segment."""
    for name, inode in segments:
        with suppress(OSError):
            if (path := Path(name)).stat().st_ino == inode:
                path.unlink()
