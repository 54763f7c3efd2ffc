"""Implementations with right results that leave a file or named shared memory after close()."""

from __future__ import annotations

import mmap
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..engine.collective_effects import sending
from ..engine.collectives import Call, all_reduce, group_of, in_group, in_place
from ..engine.fault import Fault, table
from ..facet_seams import PassThrough, collectives

NAMELESS = "check_close_leaves_no_files_or_shared_memory"


@sending
def file_for_the_group(call: Call) -> Call:
    """Write a file that is never removed."""
    ranks = "-".join(map(str, call.ranks))
    Path(tempfile.gettempdir(), f"group-{ranks}").write_text(f"{ranks}\n", encoding="ascii")
    return call


@collectives("memory-after-close", NAMELESS, cause="shared-memory-left-after-close", gives_back=True)
class MemoryAfterClose(PassThrough):
    """close() leaves named shared memory, which only a later run removes."""

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


# fmt: off
table(
    globals(),
    Fault("file-after-close", "Each group leaves a file in the temporary folder.",
          where=(all_reduce | in_place) & in_group & ~group_of(1), effect=file_for_the_group,
          caught_by=NAMELESS, cause="files-left-after-close", gives_back=True),
)
# fmt: on
