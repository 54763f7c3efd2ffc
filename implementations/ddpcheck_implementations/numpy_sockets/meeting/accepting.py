"""Accept connections whose first bytes say which rank is there, whatever else knocks at the same time."""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Callable, Iterable

from ..errors import RendezvousError

_MOST_STRANGERS = 128
"""So many may be silent, besides the ranks."""


def accept_declared(
    listener: socket.socket,
    size: int,
    judge: Callable[[bytes], int | str | None],
    refusal: Callable[[str], bytes],
    expected: set[int],
    deadline: float,
    host: str,
    challenge: bytes = b"",
) -> dict[int, socket.socket]:
    """Connections of all `expected` ranks, by the rank that each declares in its first `size` bytes.

    `judge` says what these bytes mean: a rank, a reason to turn it away, which goes back as `refusal(reason)`, or
    None for a stranger. Each is told the `challenge` first. Bytes are read from all at once as they come, so one that
    connects and stays silent delays nobody; of many such, the oldest make room.
    """
    found: dict[int, socket.socket] = {}
    heard: dict[socket.socket, bytearray] = {}  # the oldest first
    turned_away: list[str] = []
    with selectors.DefaultSelector() as selector:
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ)
        while expected - found.keys():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                _close(heard)
                _close(found.values())
                raise RendezvousError(*_missing(expected - found.keys(), host, turned_away))
            for key, _ in ready:
                if key.fileobj is listener:
                    newcomer = _accepted(listener)
                    if newcomer is not None:
                        _say(newcomer, challenge)
                        heard[newcomer] = bytearray()
                        selector.register(newcomer, selectors.EVENT_READ)
                    if len(heard) > len(expected) + _MOST_STRANGERS:
                        oldest = next(iter(heard))
                        selector.unregister(oldest)
                        del heard[oldest]
                        oldest.close()
                    continue
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                if connection not in heard:
                    continue  # it has just made room
                if _read_into(heard[connection], connection, size):
                    continue
                selector.unregister(connection)
                said = bytes(heard.pop(connection))
                verdict = judge(said) if len(said) == size else None
                if isinstance(verdict, int):
                    connection.setblocking(True)
                    found[verdict] = connection
                    continue
                if verdict is not None:
                    turned_away.append(verdict)
                    _say(connection, refusal(verdict))
                connection.close()
    _close(heard)
    return found


def _accepted(listener: socket.socket) -> socket.socket | None:
    try:
        connection, _ = listener.accept()
    except OSError:
        return None  # it hung up while it waited
    connection.setblocking(False)
    return connection


def _read_into(heard: bytearray, connection: socket.socket, size: int) -> bool:
    """Whether more must come: False once `size` bytes are there, or the other side has hung up."""
    try:
        piece = connection.recv(size - len(heard))
    except BlockingIOError:
        return True
    except OSError:
        return False
    heard += piece
    return bool(piece) and len(heard) < size


def _say(connection: socket.socket, text: bytes) -> None:
    with contextlib.suppress(OSError):  # it may not be there to hear it
        connection.sendall(text)


def _close(connections: Iterable[socket.socket]) -> None:
    for connection in connections:
        connection.close()


def _missing(ranks: set[int], host: str, turned_away: list[str]) -> tuple[int, str]:
    names = ", ".join(map(str, sorted(ranks)))
    also = f" Turned away: {'; '.join(turned_away)}." if turned_away else ""
    return min(ranks), (
        f"{host} still waits for rank{'s' * (len(ranks) > 1)} {names} at its time limit: see their output, and check that "
        f"MASTER_ADDR and MASTER_PORT are the same for all.{also}"
    )
