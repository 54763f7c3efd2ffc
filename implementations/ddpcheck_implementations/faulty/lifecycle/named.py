"""Right results, and something stays under a name when all ranks have closed: a file, or memory that they shared."""

from __future__ import annotations

import mmap
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from ddpcheck.values import Array

from ..facets import Group, PassThrough, collectives

NAMELESS = "check_close_leaves_no_files_or_shared_memory"


@collectives("file-after-close", NAMELESS, cause="files-left-after-close", gives_back=True)
class FileAfterClose(PassThrough):
    """Where a group meets is written to a file, once it is needed, which the next run does not need and nobody removes."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if group is not None and self.size(group) > 1:
            ranks = "-".join(map(str, group))
            Path(tempfile.gettempdir(), f"group-{ranks}").write_text(f"{ranks}\n", encoding="ascii")
        return super().all_reduce(array, op, group=group)


@collectives("memory-after-close", NAMELESS, cause="shared-memory-left-after-close", gives_back=True)
class MemoryAfterClose(PassThrough):
    """A rank maps memory under a name, for others to open, and leaves it to the next run to remove what dead ones left."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        for path in Path("/dev/shm").glob("ddpcheck-left-*"):
            with suppress(OSError):
                if not Path("/proc", path.name.rpartition("-")[2]).exists():
                    path.unlink()
        opened = os.open(f"/dev/shm/ddpcheck-left-{os.getpid()}", os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(opened, mmap.PAGESIZE)
        self.memory = mmap.mmap(opened, mmap.PAGESIZE)
        os.close(opened)
