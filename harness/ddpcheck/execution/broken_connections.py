"""Connections of an implementation that break while all ranks live, as on a network that fails."""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

_LIBRARY = ctypes.CDLL(None, use_errno=True)


@cache
def sockets_at_start() -> frozenset[str]:
    """The sockets that the process had at the first call: those of the harness, if that was before connect()."""
    return frozenset(name for _, name in _sockets())


def break_connections() -> int:
    """Shut down every stream socket that the implementation has connected. Returns how many."""
    broken = 0
    for file, name in _sockets():
        # by the C library: a Python socket might change how the file blocks; one that only listens refuses
        if name not in sockets_at_start() and not _LIBRARY.shutdown(file, socket.SHUT_RDWR):
            broken += 1
    return broken


def _sockets() -> Iterator[tuple[int, str]]:
    """Numbers of descriptors, and the sockets that they stand for."""
    with suppress(OSError):
        for file in [*Path("/proc/self/fd").iterdir()]:
            with suppress(OSError):
                name = str(file.readlink())
                if name.startswith("socket:"):
                    yield int(file.name), name
