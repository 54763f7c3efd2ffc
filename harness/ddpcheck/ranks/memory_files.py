"""Two unnamed memory files of a rank, which the driver reads through /proc even when the rank is stuck or dead.

One holds the position of the current operation, and the count of operations entered. The other holds stacks, which
faulthandler writes on SIGUSR1 and on a crash, without the interpreter's lock.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import signal
import struct
from collections.abc import Sequence

from ..launchers.orphaned_processes import Inode

_PROGRESS = struct.Struct("qq")


class MemoryFiles:
    """The two files, open in this process under these numbers."""

    def __init__(self, progress: int, stacks: int) -> None:
        self.numbers: tuple[int, int] = (progress, stacks)

    @property
    def inodes(self) -> set[Inode]:
        """Device and inode of both files, which the rank's forked children hold open too."""
        found = [os.fstat(number) for number in self.numbers]
        return {(file.st_dev, file.st_ino) for file in found}

    def progress(self) -> tuple[int, int]:
        """Return the Job position of the operation entered last, and the count of operations entered."""
        position, entered = _PROGRESS.unpack(os.pread(self.numbers[0], _PROGRESS.size, 0))
        return int(position), int(entered)

    def stacks(self) -> str:
        return os.pread(self.numbers[1], 20000, 0).decode(errors="replace").strip()

    def close(self) -> None:
        for number in self.numbers:
            os.close(number)


class WrittenMemoryFiles(MemoryFiles):
    """New files of this process, a rank."""

    def __init__(self) -> None:
        super().__init__(os.memfd_create("ddpcheck-progress"), os.memfd_create("ddpcheck-stack"))
        progress, stacks = self.numbers
        os.ftruncate(progress, mmap.PAGESIZE)
        self._page = mmap.mmap(progress, mmap.PAGESIZE)
        self._entered = 0
        faulthandler.enable(stacks)
        faulthandler.register(signal.SIGUSR1, stacks, all_threads=True)

    def enter(self, operation: int) -> None:
        self._entered += 1
        _PROGRESS.pack_into(self._page, 0, operation, self._entered)


def open_memory_files(pid: int, numbers: Sequence[int]) -> MemoryFiles | None:
    """Open the files of a rank on this host, which stay readable after its death; None if it has none."""
    if not numbers:
        return None
    opened: list[int] = []
    try:
        # one by one: after an error the list holds those that are open
        opened.extend(os.open(f"/proc/{pid}/fd/{number}", os.O_RDONLY | os.O_CLOEXEC) for number in numbers)
    except OSError:
        for number in opened:
            os.close(number)
        return None
    progress, stacks = opened
    return MemoryFiles(progress, stacks)
