"""Breaks the connections of an implementation while all ranks live, as a failing network does."""

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
    """The sockets that the process had at the first call: the harness's own, if that call comes before connect()."""
    return frozenset(name for _, name in _sockets())


def break_connections() -> int:
    """Shut down every connected stream socket of the implementation. Returns their number."""
    broken = 0
    for file, name in _sockets():
        # by the C library: a Python socket might change the blocking mode; a listening socket refuses
        if name not in sockets_at_start() and not _LIBRARY.shutdown(file, socket.SHUT_RDWR):
            broken += 1
    return broken


def _sockets() -> Iterator[tuple[int, str]]:
    """The numbers of descriptors of sockets, and the sockets' identities."""
    with suppress(OSError):
        for file in [*Path("/proc/self/fd").iterdir()]:
            with suppress(OSError):
                name = str(file.readlink())
                if name.startswith("socket:"):
                    yield int(file.name), name
