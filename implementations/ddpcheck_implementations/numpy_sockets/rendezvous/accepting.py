"""Accept connections from ranks, which declare their rank in their first bytes, and drop other programs."""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import time
from collections.abc import Callable, Iterable

from ..errors import RendezvousError

_MAX_FOREIGN_CLIENTS = 128
"""The largest number of silent connections besides those of ranks."""

_REFUSED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Errors of accept() that are not the client's."""

Judge = Callable[[bytes], "int | str | None"]
"""A function from a client's first bytes to its rank, to a reason to refuse it, or to None for another program."""


def accept_ranks(
    listener: socket.socket,
    size: int,
    judge: Judge,
    refusal: Callable[[str], bytes],
    expected: set[int],
    deadline: float,
    host: str,
    challenge: bytes = b"",
) -> dict[int, socket.socket]:
    """Return connections of all `expected` ranks, by the rank that each declares in its first `size` bytes.

    Every client receives the `challenge` first. `judge` decides on its first bytes; a reason goes back as `refusal(reason)`.
    RendezvousError at the `deadline` (of time.monotonic) names missing ranks and `host`, the listening program. OSError if the
    system refuses another connection.
    """
    reception = _Reception(listener, size, judge, refusal, len(expected), challenge)
    with reception.selector:
        while missing := expected - reception.ranks.keys():
            ready = reception.selector.select(max(0.0, deadline - time.monotonic()))
            if not ready or time.monotonic() > deadline:
                _close(reception.undeclared)
                _close(reception.ranks.values())
                raise RendezvousError(*_missing(missing, host, reception.refused))
            for key, _ in ready:
                if key.fileobj is listener:
                    reception.welcome()
                else:
                    assert isinstance(key.fileobj, socket.socket)
                    reception.read(key.fileobj)
    _close(reception.undeclared)
    return reception.ranks


class _Reception:
    """Clients of a listener. All are read at once, so a silent one delays no other; of too many, the oldest is dropped."""

    def __init__(
        self,
        listener: socket.socket,
        size: int,
        judge: Judge,
        refusal: Callable[[str], bytes],
        ranks: int,
        challenge: bytes,
    ) -> None:
        self.ranks: dict[int, socket.socket] = {}
        self.undeclared: dict[socket.socket, bytearray] = {}  # with the bytes received; the oldest first
        self.refused: list[str] = []
        self.selector = selectors.DefaultSelector()
        listener.setblocking(False)
        self.selector.register(listener, selectors.EVENT_READ)
        self._listener, self._size = listener, size
        self._judge, self._refusal, self._challenge = judge, refusal, challenge
        self._max_undeclared = ranks + _MAX_FOREIGN_CLIENTS

    def welcome(self) -> None:
        """Accept the next client, and drop the oldest undeclared one if there are too many."""
        client = _accept(self._listener)
        if client is not None:
            _send(client, self._challenge)
            self.undeclared[client] = bytearray()
            self.selector.register(client, selectors.EVENT_READ)
        if len(self.undeclared) > self._max_undeclared:
            oldest = next(iter(self.undeclared))
            self.selector.unregister(oldest)
            del self.undeclared[oldest]
            oldest.close()

    def read(self, client: socket.socket) -> None:
        """Read the bytes that have arrived from a client; once all are there, keep it as a rank, or refuse it."""
        if client not in self.undeclared:
            return  # dropped since the selector reported it
        if _must_read_more(client, self.undeclared[client], self._size):
            return
        self.selector.unregister(client)
        declared = bytes(self.undeclared.pop(client))
        verdict = self._judge(declared) if len(declared) == self._size else None
        if isinstance(verdict, int):
            client.setblocking(True)
            self.ranks[verdict] = client
            return
        if verdict is not None:
            self.refused.append(verdict)
            _send(client, self._refusal(verdict))
        client.close()


def _accept(listener: socket.socket) -> socket.socket | None:
    try:
        connection, _ = listener.accept()
    except OSError as error:
        if error.errno in _REFUSED:
            raise
        return None  # the client has closed before it was accepted
    connection.setblocking(False)
    return connection


def _must_read_more(connection: socket.socket, received: bytearray, size: int) -> bool:
    """Read the bytes that have arrived. False once `size` bytes are there, or the client has closed."""
    try:
        piece = connection.recv(size - len(received))
    except BlockingIOError:
        return True
    except OSError:
        return False
    received += piece
    return bool(piece) and len(received) < size


def _send(connection: socket.socket, message: bytes) -> None:
    with contextlib.suppress(OSError):  # the client may have closed
        connection.sendall(message)


def _close(connections: Iterable[socket.socket]) -> None:
    for connection in connections:
        connection.close()


def _missing(ranks: set[int], host: str, refused: list[str]) -> tuple[int, str]:
    names = ", ".join(map(str, sorted(ranks)))
    also = f" Refused: {'; '.join(refused)}." if refused else ""
    return min(ranks), (
        f"{host} still waits for rank{'s' * (len(ranks) > 1)} {names} at its time limit: see their output, and check that "
        f"MASTER_ADDR and MASTER_PORT are the same for all.{also}"
    )
