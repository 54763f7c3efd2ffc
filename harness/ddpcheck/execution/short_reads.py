"""Cuts reads and sends on Python's stream sockets short, as every network may do.

Reads with MSG_WAITALL or MSG_PEEK, and those of the harness's own channel, stay whole.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .socket_methods import SocketMethods

_WHOLE = socket.MSG_WAITALL | socket.MSG_PEEK
_methods = SocketMethods()
_turns = itertools.count()
_cut = 0


def shorten_reads() -> None:
    """Cut reads and sends of more than one byte short from now on, in all threads."""
    _methods.replace(_SHORT)


def restore_reads() -> None:
    """Restore normal reads and sends."""
    _methods.restore()


def reads_are_short() -> int:
    """The number of reads and sends of this process that were cut short so far."""
    return _cut


def _fewer(connection: socket.socket, asked: int, flags: int) -> int:
    """One byte, and half of the bytes asked for, in turn, so that headers are split and large messages still
    progress.
    """
    global _cut
    if asked < 2 or flags & _WHOLE or connection.type != socket.SOCK_STREAM:
        return asked
    _cut += 1
    return 1 if next(_turns) % 2 else (asked + 1) // 2


def _recv(self: socket.socket, size: int, flags: int = 0, /) -> Any:
    return _methods.original("recv")(self, _fewer(self, size, flags), flags)


def _recv_into(self: socket.socket, buffer: Any, nbytes: int = 0, flags: int = 0) -> Any:
    asked = nbytes or memoryview(buffer).nbytes
    return _methods.original("recv_into")(self, buffer, _fewer(self, asked, flags), flags)


def _recvmsg(self: socket.socket, size: int, ancillary: int = 0, flags: int = 0, /) -> Any:
    return _methods.original("recvmsg")(self, _fewer(self, size, flags), ancillary, flags)


def _recvmsg_into(self: socket.socket, buffers: Iterable[Any], ancillary: int = 0, flags: int = 0, /) -> Any:
    return _methods.original("recvmsg_into")(self, _first(self, buffers, flags), ancillary, flags)


def _send(self: socket.socket, data: Any, flags: int = 0, /) -> Any:
    return _methods.original("send")(self, b"".join(_first(self, [data], flags)), flags)


def _sendmsg(self: socket.socket, buffers: Iterable[Any], *rest: Any) -> Any:
    flags = rest[1] if len(rest) > 1 else 0
    return _methods.original("sendmsg")(self, _first(self, buffers, flags), *rest)


def _first(connection: socket.socket, buffers: Iterable[Any], flags: int) -> list[Any]:
    """The part of the buffers that is sent at once."""
    views = [memoryview(buffer) for buffer in buffers]
    left = _fewer(connection, sum(view.nbytes for view in views), flags)
    first = []
    for view in views:
        if view.nbytes and left:
            flat = np.frombuffer(view, np.uint8) if view.contiguous else None
            first.append(view if flat is None else flat[:left])
            left -= min(left, view.nbytes)
    return first


_SHORT: dict[str, Callable[..., Any]] = {
    "recv": _recv,
    "recv_into": _recv_into,
    "recvmsg": _recvmsg,
    "recvmsg_into": _recvmsg_into,
    "send": _send,
    "sendmsg": _sendmsg,
}
