"""Bytes that this process has sent and received over TCP, by connection, as its kernel counts them.

The open sockets of the process are found through /proc, and the kernel returns the TCP_INFO of each, without asking the
implementation. A count of sent bytes holds those handed to the socket: sent for the first time, or waiting to be sent.
"""

from __future__ import annotations

import ctypes
import socket
import struct
import time
from collections.abc import Iterator
from typing import NamedTuple

from ..launchers.process_handles import open_files

_TCP_INFO = 11
_FIELDS = (("I", 100), ("Q", 128), ("I", 144), ("I", 156), ("Q", 200), ("Q", 208))
"""Formats and offsets of tcpi_total_retrans, tcpi_bytes_received, tcpi_notsent_bytes, tcpi_data_segs_out, tcpi_bytes_sent
and tcpi_bytes_retrans in struct tcp_info. The struct only ever grows at its end.
"""
_END = 216
_LOOKS = 5


def sent_by_connection() -> dict[str, tuple[int, int]]:
    """Bytes and packets sent over each TCP connection, by a stable name; empty if the system does not count them (not
    Linux).

    A packet holds a message or a part of one; several messages only if they wait together.
    """
    return {name: (count.sent, count.packets) for name, count in _counts()}


def transferred_within(seconds: float) -> int:
    """Bytes sent and received until the first look at which some have moved, at most `seconds` later; 0 if none moved.

    Connections made meanwhile do not count: a rank that connects again and again makes no progress.
    """
    before = {name: count.sent + count.received for name, count in _counts()}
    limit = time.monotonic() + seconds
    while True:
        time.sleep(seconds / _LOOKS)
        moved = sum(count.sent + count.received - before[name] for name, count in _counts() if name in before)
        if moved or time.monotonic() >= limit:
            return moved


class _Count(NamedTuple):
    """Bytes and packets sent, and bytes received."""

    sent: int
    packets: int
    received: int


def _counts() -> Iterator[tuple[str, _Count]]:
    """Each TCP connection by a stable name."""
    for file, name in open_files():
        if name.startswith("socket:") and (count := _count(file)) is not None:
            yield name, count


def _count(number: int) -> _Count | None:
    """None if this is not a TCP socket. By the C library: a Python socket might change the blocking
    mode.
    """
    info, size = ctypes.create_string_buffer(256), ctypes.c_uint32(256)
    failed = _LIBRARY.getsockopt(number, socket.IPPROTO_TCP, _TCP_INFO, info, ctypes.byref(size))
    if failed or size.value < _END:
        return None
    lost, received, waiting, packets, sent, again = (int(struct.unpack_from(code, info, at)[0]) for code, at in _FIELDS)
    return _Count(sent - again + waiting, packets - lost, received)


_LIBRARY = ctypes.CDLL(None)
