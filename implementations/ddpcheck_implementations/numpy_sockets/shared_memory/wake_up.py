"""What wakes a rank that waits for memory to change: a pipe, which the other ranks of its host open by way of /proc."""

from __future__ import annotations

import contextlib
import os


class Bell:
    """This rank's. Others need its process id, and `descriptor`."""

    def __init__(self) -> None:
        self._pipe, self.descriptor = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def fileno(self) -> int:
        """Readable when somebody has rung."""
        return self._pipe

    def silence(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._pipe, 4096)

    def close(self) -> None:
        os.close(self._pipe)
        os.close(self.descriptor)


class Rope:
    """To ring another rank's Bell. OSError if it cannot be reached."""

    def __init__(self, process: int, descriptor: int) -> None:
        self._pipe = os.open(f"/proc/{process}/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def pull(self) -> None:
        with contextlib.suppress(OSError):  # it rings already, or nobody is there any more
            os.write(self._pipe, b"\0")

    def close(self) -> None:
        os.close(self._pipe)
