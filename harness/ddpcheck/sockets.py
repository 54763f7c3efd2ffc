"""How much this process has sent over TCP, connection by connection, as its kernel counts it.

The implementation is not asked: the sockets that the process has open are found through /proc, and each is asked for its
TCP_INFO. What counts is what was handed to the socket: sent for the first time, or waiting to be sent.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from contextlib import suppress
from pathlib import Path

_TCP_INFO = 11
_FIELDS = (("I", 144), ("Q", 200), ("Q", 208))
"""tcpi_notsent_bytes, tcpi_bytes_sent and tcpi_bytes_retrans in struct tcp_info, which only ever grows at its end."""
_END = 216


def sent_by_connection() -> dict[str, int]:
    """Bytes sent over each TCP connection, by a name that stays; empty where the system does not tell (not Linux)."""
    found: dict[str, int] = {}
    with suppress(OSError):
        for file in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                name = str(file.readlink())
                count = _sent(int(file.name)) if name.startswith("socket:") else None
                if count is not None:
                    found[name] = count
    return found


def _sent(number: int) -> int | None:
    """None if this is no TCP socket. By the C library: a Python socket might change how the file blocks."""
    info, size = ctypes.create_string_buffer(256), ctypes.c_uint32(256)
    failed = _LIBRARY.getsockopt(number, socket.IPPROTO_TCP, _TCP_INFO, info, ctypes.byref(size))
    if failed or size.value < _END:
        return None
    waiting, sent, again = (struct.unpack_from(code, info, at)[0] for code, at in _FIELDS)
    return int(sent - again + waiting)


_LIBRARY = ctypes.CDLL(None)
