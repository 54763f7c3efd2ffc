"""Socket options of each connection between two ranks."""

from __future__ import annotations

import socket
import struct

LOOK_SECONDS = 0.5
"""Seconds of waiting after which a rank looks, again and again, for mismatched calls of other ranks (Peer.stray, lookout.py)."""
UNDER_WAY_BYTES = 384 * 1024
"""Bytes in flight within a host. More would leave the cache before they are read: all-reduces of 25 MiB took
1.5 times as long with the kernel's own choice, and from 576 KiB on. Between hosts the kernel knows best."""


def set_options(connection: socket.socket, timeout: float) -> None:
    """Calls block for LOOK_SECONDS, or the timeout, small messages leave at once, and those within a host stay in the cache."""
    connection.settimeout(None)
    limit = min(timeout, LOOK_SECONDS)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        connection.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(limit), int(limit % 1 * 1e6)))
    if connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if _within_host(connection):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNDER_WAY_BYTES)


def _within_host(connection: socket.socket) -> bool:
    return connection.family == socket.AF_UNIX or connection.getsockname()[0] == connection.getpeername()[0]
