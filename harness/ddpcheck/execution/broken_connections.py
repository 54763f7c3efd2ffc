"""Breaks the connections of an implementation while all ranks live, as a failing network does."""

from __future__ import annotations

import ctypes
import socket
from functools import cache

from ..launchers.process_handles import open_files

_LIBRARY = ctypes.CDLL(None, use_errno=True)


@cache
def sockets_at_start() -> frozenset[str]:
    """The sockets that the process had at the first call: the harness's own, if that call comes before connect()."""
    return frozenset(name for _, name in open_files() if name.startswith("socket:"))


def break_connections() -> int:
    """Shut down every connected stream socket of the implementation. Returns their number."""
    broken = 0
    for file, name in open_files():
        if name.startswith("socket:") and name not in sockets_at_start():
            # by the C library: a Python socket might change the blocking mode; a listening socket refuses
            broken += not _LIBRARY.shutdown(file, socket.SHUT_RDWR)
    return broken
