"""Bytes that this process has sent over TCP, by connection, as its kernel counts them.

The implementation is not asked: the sockets that the process has open are found through /proc, and each is asked for its
TCP_INFO. They are the bytes handed to the socket: sent for the first time, or waiting to be sent.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from contextlib import suppress
from pathlib import Path

_TCP_INFO = 11
_FIELDS = (("I", 100), ("I", 144), ("I", 156), ("Q", 200), ("Q", 208))
"""tcpi_total_retrans, tcpi_notsent_bytes, tcpi_data_segs_out, tcpi_bytes_sent and tcpi_bytes_retrans in struct tcp_info, which
only ever grows at its end.
"""
_END = 216


def sent_by_connection() -> dict[str, tuple[int, int]]:
    """Bytes and packets sent over each TCP connection, by a name that stays; empty where the system does not tell (not Linux).

    A packet holds one message, if the next one is not there before it leaves, or a part of one.
    """
    found: dict[str, tuple[int, int]] = {}
    with suppress(OSError):
        for file in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                name = str(file.readlink())
                count = _sent(int(file.name)) if name.startswith("socket:") else None
                if count is not None:
                    found[name] = count
    return found


def _sent(number: int) -> tuple[int, int] | None:
    """None if this is no TCP socket. By the C library: a Python socket might change how the file blocks."""
    info, size = ctypes.create_string_buffer(256), ctypes.c_uint32(256)
    failed = _LIBRARY.getsockopt(number, socket.IPPROTO_TCP, _TCP_INFO, info, ctypes.byref(size))
    if failed or size.value < _END:
        return None
    lost, waiting, packets, sent, again = (int(struct.unpack_from(code, info, at)[0]) for code, at in _FIELDS)
    return sent - again + waiting, packets - lost


_LIBRARY = ctypes.CDLL(None)
