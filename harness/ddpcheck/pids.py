"""Processes of this host by number: handles that name one for ever, and who has started whom."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path


def open_process(pid: int) -> int | None:
    """A handle through which a signal can never reach another process of the same number; None if there can be none.

    It is a file descriptor: close it with os.close.
    """
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def end_process(handle: int) -> None:
    """By force; nothing happens if it has ended."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle, signal.SIGKILL)


def processes_under(process: int) -> set[int]:
    """A process's children, and theirs."""
    found: set[int] = set()
    with suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (thread / "children").read_text(encoding="ascii").split()):
                found |= {child} | processes_under(child)
    return found
