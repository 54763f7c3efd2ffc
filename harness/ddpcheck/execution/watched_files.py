"""Records the files of a Job that a rank opens for writing.

Files opened for writing are recorded through the interpreter's audit events, for any library except C code that opens
files itself. A slow disk is emulated in the same hook.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SLOW_FOLDER = 0.1
SLOW_FILE = 0.01
"""Seconds that a slow disk takes to make a folder, to open a file for writing, or to move a file."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_EVENTS = frozenset({"open", "os.mkdir", "os.rename"})


@dataclass
class _Watch:
    folder: str
    slow: bool
    opened: dict[str, None] = field(default_factory=dict)

    def see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not isinstance(arguments[0], (str, bytes, os.PathLike)):
            return  # a file descriptor
        path = _absolute(os.fsdecode(arguments[0]))
        if path != self.folder and not path.startswith(self.folder + os.sep):
            return
        if event == "open":
            if not (arguments[2] or 0) & _WRITING:
                return
            self.opened[os.path.relpath(path, self.folder)] = None
        if self.slow and not (event == "os.mkdir" and Path(path).exists()):
            time.sleep(SLOW_FOLDER if event == "os.mkdir" else SLOW_FILE)


_watches: dict[int, _Watch] = {}  # by thread: ranks may be threads of one process, in tests
_installed = False


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watches or event not in _EVENTS:
        return
    watch = _watches.get(threading.get_ident())
    if watch is None and len(_watches) == 1:
        (watch,) = _watches.values()  # a thread of the implementation
    if watch is not None:
        watch.see(event, arguments)


@contextmanager
def watched(folder: str, *, slow: bool = False) -> Iterator[dict[str, bool]]:
    """Record the files below `folder` that are opened for writing; the yielded mapping is filled at the end.

    Keys are relative paths. Values are False for an empty file, and True for a file with content or one that was
    removed. A file that is empty for all ranks is a lock; for a file that is empty for some ranks, another rank may
    hold the lock.
    """
    global _installed
    if not _installed:
        sys.addaudithook(_hook)  # an audit hook cannot be removed
        _installed = True
    watch = _watches[threading.get_ident()] = _Watch(_absolute(folder), slow)
    written: dict[str, bool] = {}
    try:
        yield written
    finally:
        del _watches[threading.get_ident()]
        written.update({name: not _is_empty(Path(watch.folder, name)) for name in watch.opened})


def _is_empty(path: Path) -> bool:
    return path.exists() and path.stat().st_size == 0


def _absolute(path: str) -> str:
    """Make a path absolute without disk access, which Path.resolve needs and which would be an event itself."""
    return os.path.abspath(path)  # noqa: PTH100
