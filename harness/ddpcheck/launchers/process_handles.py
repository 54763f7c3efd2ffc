"""Processes of this host by id: handles that always refer to the same process, and parents."""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path

DRIVER = "DDPCHECK_DRIVER"
"""The variable by which a command tells ranks the id of its own process."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def open_process(pid: int) -> int | None:
    """A handle whose signals never reach a later process with the same id; None if the process cannot be opened.

    The handle is a file descriptor: close it with os.close.
    """
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def end_process(handle: int) -> None:
    """Kill the process; no error if it has ended."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle, signal.SIGKILL)


def wait_for_end(handle: int, seconds: float) -> None:
    """Wait until the process has ended, for so many seconds at most."""
    poller = select.poll()
    poller.register(handle, select.POLLIN)  # readable once it has ended
    poller.poll(seconds * 1000)


def end_group(leader: int, *, ended: bool) -> None:
    """Kill the group that a process leads, and the process itself unless it has ended.

    An id stays taken while a group has it. So a process with the id of an ended leader is another process.
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
    """All descendants of a process."""
    found: set[int] = set()
    with suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (thread / "children").read_text(encoding="ascii").split()):
                found |= {child} | processes_under(child)
    return found


def open_files(process: int | str = "self") -> list[tuple[int, str]]:
    """The descriptors of a process, each with its target, such as "socket:[4711]"; none if the process has ended."""
    found: list[tuple[int, str]] = []
    with suppress(OSError):
        for entry in Path(f"/proc/{process}/fd").iterdir():
            with suppress(OSError):  # the folder's own descriptor, or one that was closed meanwhile
                found.append((int(entry.name), str(entry.readlink())))
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
    with suppress(OSError, ValueError, IndexError):  # not Linux, or a kernel without it; or the process has ended
        for thread in Path(f"/proc/{process}/task").iterdir():
            found[int(thread.name)] = int((thread / "schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    return found


def end_with_parent(parent: int) -> bool:
    """Let the kernel kill this process, even a stuck one, when its parent ends. False if the system cannot do so."""
    if sys.platform != "linux":
        return False
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent has ended already
        os._exit(1)
    return True


def adopt_orphans() -> None:
    """Become the parent of all processes below this one whose parent ends, so that processes_under() finds them. Linux
    only.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
