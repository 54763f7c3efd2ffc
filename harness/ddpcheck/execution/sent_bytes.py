"""Bytes that this process has sent over TCP, by connection, as its kernel counts them.

The open sockets of the process are found through /proc, and the kernel returns the TCP_INFO of each, without asking the
implementation. A count holds the bytes handed to the socket: sent for the first time, or waiting to be sent.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from contextlib import suppress
from pathlib import Path

_TCP_INFO = 11
_FIELDS = (("I", 100), ("I", 144), ("I", 156), ("Q", 200), ("Q", 208))
"""Formats and offsets of tcpi_total_retrans, tcpi_notsent_bytes, tcpi_data_segs_out, tcpi_bytes_sent and
tcpi_bytes_retrans in struct tcp_info. The struct only ever grows at its end.
"""
_END = 216


def sent_by_connection() -> dict[str, tuple[int, int]]:
    """Bytes and packets sent over each TCP connection, by a stable name; empty if the system does not count them (not
    Linux).

    A packet holds a message or a part of one; several messages only if they wait together.
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
    """Bytes and packets; None if this is not a TCP socket. By the C library: a Python socket might change the blocking
    mode.
    """
    info, size = ctypes.create_string_buffer(256), ctypes.c_uint32(256)
    failed = _LIBRARY.getsockopt(number, socket.IPPROTO_TCP, _TCP_INFO, info, ctypes.byref(size))
    if failed or size.value < _END:
        return None
    lost, waiting, packets, sent, again = (int(struct.unpack_from(code, info, at)[0]) for code, at in _FIELDS)
    return sent - again + waiting, packets - lost


_LIBRARY = ctypes.CDLL(None)
