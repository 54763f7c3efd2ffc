"""Takes every port that this process finds free and releases, as another process might."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

from .socket_methods import SocketMethods

_methods = SocketMethods()
_held: list[socket.socket] = []
_ANY = 0


def take_released_ports() -> None:
    """From now on, when a socket with a port chosen by the system is closed, another socket takes the port."""
    _methods.replace({"bind": _bind, "close": _close})


def give_ports_back() -> None:
    """Release the taken ports, and stop taking more."""
    _methods.restore()
    while _held:
        _held.pop().close()
    _chosen.clear()


def ports_taken() -> int:
    """The number of taken ports."""
    return len(_held)


_chosen: dict[int, tuple[Any, ...]] = {}
"""Addresses chosen by the system, by the socket's file descriptor."""


def _bind(self: socket.socket, address: Any, /) -> None:
    _methods.original("bind")(self, address)
    _chosen.pop(self.fileno(), None)
    if self.type == socket.SOCK_STREAM and isinstance(address, tuple) and len(address) > 1 and address[1] == _ANY:
        _chosen[self.fileno()] = self.getsockname()


def _close(self: socket.socket) -> None:
    file = self.fileno()
    _methods.original("close")(self)
    address = _chosen.pop(file, None) if self.fileno() < 0 else None
    if address is None:
        return
    taker = socket.socket(self.family, socket.SOCK_STREAM)
    try:
        _methods.original("bind")(taker, address)
        taker.listen()
    except OSError:  # the world's connections use the port: it was listened on, not only looked up
        with suppress(OSError):
            _methods.original("close")(taker)
        return
    _held.append(taker)
