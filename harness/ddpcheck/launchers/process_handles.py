"""Processes of this host by id: handles that always refer to the same process, and parents."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

DRIVER = "DDPCHECK_DRIVER"
"""The variable in which a command names its own process to the ranks that it starts."""
_PR_SET_PDEATHSIG = 1


def open_process(pid: int) -> int | None:
    """A handle through which a signal can never reach another process of the same number; None if there can be none.

    It is a file descriptor: close it with os.close.
    """
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def end_process(handle: int) -> None:
    """Kill the process; nothing happens if it has ended."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle, signal.SIGKILL)


def end_group(leader: int, *, ended: bool) -> None:
    """Kill the group that a process leads, and the process itself unless it has ended.

    A number stays taken while a group has it: if the leader has ended, and a process has its number, that is another one.
    """
    with suppress(ProcessLookupError, PermissionError):
        if not (ended and _is_taken(leader)):
            os.killpg(leader, signal.SIGKILL)


def _is_taken(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def processes_under(process: int) -> set[int]:
    """A process's children, and theirs."""
    found: set[int] = set()
    with suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (thread / "children").read_text(encoding="ascii").split()):
                found |= {child} | processes_under(child)
    return found


def is_stopped(process: int) -> bool:
    """Whether the process is stopped, by SIGSTOP for example."""
    return state(process) == "T"


def state(process: int) -> str:
    """The state of the main thread, one letter; empty if unknown."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return ""


def queued(process: int) -> dict[int, float]:
    """Seconds that each of its threads has waited for a processor so far."""
    found: dict[int, float] = {}
    with suppress(OSError, ValueError, IndexError):  # not Linux, or built without; or it has ended
        for thread in Path(f"/proc/{process}/task").iterdir():
            found[int(thread.name)] = int((thread / "schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    return found


def end_with_parent(parent: int) -> bool:
    """Have the kernel kill this process, even a stuck one, when its parent ends. False where no system call does so."""
    if sys.platform != "linux":
        return False
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was quicker
        os._exit(1)
    return True
