"""Errors by which a system refuses a resource: too many open files, no memory, no more processes, a full disk."""

from __future__ import annotations

import errno
import mmap
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from resource import RLIM_INFINITY, RLIMIT_AS, getrlimit

from .causes import Cause
from .causes.machine import SYSTEM_REFUSES_RESOURCE

_RESOURCES = {
    errno.EMFILE: "more open files (EMFILE)",
    errno.ENFILE: "more open files (ENFILE)",
    errno.ENOMEM: "more memory (ENOMEM)",
    errno.ENOBUFS: "more memory (ENOBUFS)",
    errno.ENOSPC: "more room on a disk or in shared memory (ENOSPC)",
    errno.EDQUOT: "more room on a disk (EDQUOT)",
}
_SHARED_MEMORY = "/dev/shm"
_LITTLE_BYTES = 1 << 20
_AMPLE_BYTES = 1 << 30
"""A size far above that of any one Job, tested if free memory is unknown."""
_PROCESSES = "more processes or threads (EAGAIN)"
_START_PROCESSES = ("subprocess.py", "popen_fork.py", "popen_spawn_posix.py", "threading.py")
_STARTING = ("_execute_child", "_launch", "start")
"""Functions of the standard library that start processes and threads. Elsewhere EAGAIN means a socket without data."""
_WORDS = {os.strerror(number): resource for number, resource in _RESOURCES.items()} | {
    os.strerror(errno.EAGAIN): _PROCESSES,
    "can't start new thread": _PROCESSES,
}
"""The words of the C library, and of Python, in the output of a process that cannot start."""


def refused_resource(error: BaseException) -> str:
    """The resource that was refused by this error or an earlier one in its chain; empty if none was."""
    return next((resource for each in _chain(error) if (resource := _resource(each))), "")


def refusal_cause(error: BaseException) -> tuple[Cause, ...]:
    """The cause, if a resource was refused."""
    resource = refused_resource(error)
    return (SYSTEM_REFUSES_RESOURCE(resource=resource),) if resource else ()


def cause_in_output(output: str) -> tuple[Cause, ...]:
    """The cause, if the output of a process that ended before it could report says that a resource was refused."""
    resource = next((resource for words, resource in _WORDS.items() if words in output), "")
    return (SYSTEM_REFUSES_RESOURCE(resource=resource),) if resource else ()


def cause_of_death() -> tuple[Cause, ...]:
    """The cause, if no shared memory is available: engines outside Python then end their process."""
    if sys.platform != "linux":
        return ()
    try:
        with tempfile.TemporaryFile(dir=_SHARED_MEMORY) as file:
            os.posix_fallocate(file.fileno(), 0, _LITTLE_BYTES)
    except OSError as error:
        return (SYSTEM_REFUSES_RESOURCE(resource=f"shared memory in {_SHARED_MEMORY} ({error.strerror})"),)
    return ()


def _resource(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return _RESOURCES[errno.ENOMEM] if _memory_is_short() else ""
    if isinstance(error, BlockingIOError) or type(error) is RuntimeError:
        frames = traceback.extract_tb(error.__traceback__)[-2:]
        started = any(frame.filename.endswith(_START_PROCESSES) and frame.name in _STARTING for frame in frames)
        return _PROCESSES if started else ""
    return _RESOURCES.get(error.errno or 0, "") if isinstance(error, OSError) else ""


def _memory_is_short() -> bool:
    """Whether memory is limited or nearly gone. Otherwise the request was absurd, such as a length read from other
    data.
    """
    if getrlimit(RLIMIT_AS)[0] != RLIM_INFINITY:
        return True
    try:
        mmap.mmap(-1, _AMPLE_BYTES).close()
    except OSError:
        return True
    return False


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
