"""Socket options of each connection between two ranks."""

from __future__ import annotations

import socket
import struct

MISMATCH_POLL_SECONDS = 0.5
"""Seconds between two checks of a waiting rank for mismatched calls and deadlocks (peer.py, deadlock_detector.py)."""
IN_FLIGHT_BYTES = 384 * 1024
"""Send buffer within a host. More bytes would leave the cache before they are read: all-reduces of 25 MiB took 1.5 times as long
from 576 KiB on, and with the kernel's default. Between hosts the kernel's default stays."""


def set_options(connection: socket.socket, timeout: float) -> None:
    """Limit blocking calls to `timeout` seconds, and MISMATCH_POLL_SECONDS at most, and send small messages at once.

    The limits are the kernel's, so that a small message costs one system call each way.
    """
    connection.settimeout(None)
    limit = min(timeout, MISMATCH_POLL_SECONDS)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        connection.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(limit), int(limit % 1 * 1e6)))
    if connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if _within_host(connection):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, IN_FLIGHT_BYTES)


def _within_host(connection: socket.socket) -> bool:
    return connection.family == socket.AF_UNIX or connection.getsockname()[0] == connection.getpeername()[0]
