"""Takes every port that this process finds free and releases, as another process might."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_plain: dict[str, Callable[..., Any]] = {}
_held: list[socket.socket] = []
_ANY = 0


def take_released_ports() -> None:
    """From now on a port that the system chose for a socket is taken by another one when that socket is closed."""
    if not _plain:
        for name, function in (("bind", _bind), ("close", _close)):
            _plain[name] = getattr(socket.socket, name)
            setattr(socket.socket, name, function)


def give_ports_back() -> None:
    """From now on released ports are free, those that were taken included."""
    while _plain:
        name, function = _plain.popitem()
        setattr(socket.socket, name, function)
    while _held:
        _held.pop().close()
    _chosen.clear()


def ports_taken() -> int:
    """The number of ports that are taken now."""
    return len(_held)


_chosen: dict[int, tuple[Any, ...]] = {}
"""Addresses chosen by the system, by the socket's file descriptor."""


def _bind(self: socket.socket, address: Any, /) -> None:
    _plain_of("bind")(self, address)
    _chosen.pop(self.fileno(), None)
    if self.type == socket.SOCK_STREAM and isinstance(address, tuple) and len(address) > 1 and address[1] == _ANY:
        _chosen[self.fileno()] = self.getsockname()


def _close(self: socket.socket) -> None:
    file = self.fileno()
    _plain_of("close")(self)
    address = _chosen.pop(file, None) if self.fileno() < 0 else None
    if address is None:
        return
    taker = socket.socket(self.family, socket.SOCK_STREAM)
    try:
        _plain_of("bind")(taker, address)
        taker.listen()
    except OSError:  # connections of the world use it: it was not looked up, but listened on
        with suppress(OSError):
            _plain_of("close")(taker)
        return
    _held.append(taker)


def _plain_of(name: str) -> Callable[..., Any]:
    """The function under a patch, which another thread may just be taking away."""
    return _plain.get(name) or getattr(socket.socket, name)
