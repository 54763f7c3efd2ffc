"""Mutual authentication of driver and ranks by the session's secret.

The listening side sends a nonce. The connecting side answers with a proof, a nonce of its own, and its greeting. The
proof is an HMAC-SHA256 with the secret over both nonces and the greeting, so a recorded answer proves nothing. Then the
listening side proves that it knows the secret, too. Clients without a proof are served at the same time, with limits on
time and number.
"""

from __future__ import annotations

import errno
import hmac
import os
import secrets
import selectors
import socket
import struct
import sys
import time
from collections import deque
from dataclasses import dataclass, field

NONCE = PROOF = 32
ANSWER = struct.Struct(f"!{PROOF}s{NONCE}sI")
"""Proof, nonce, and the length of the greeting, which follows."""
REFUSED = bytes(PROOF)
"""The answer, in place of the proof, to a client that does not know the secret."""
_LONGEST_GREETING = 1 << 16
_SECONDS = 5.0
_MOST = 128
"""The most unproven connections at once. One more closes the oldest, since a rank proves itself within milliseconds."""
_CREDENTIALS = struct.Struct("3i")  # process, user, group
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)


def proof(secret: str, role: bytes, *parts: bytes) -> bytes:
    """Return the proof, which can be computed only with the secret."""
    return hmac.digest(secret.encode(), b"".join((role, *parts)), "sha256")


@dataclass(eq=False)
class _Client:
    """A connection that has not proved itself yet. until: its time limit."""

    connection: socket.socket
    nonce: bytes
    until: float
    received: bytearray = field(default_factory=bytearray)

    def missing(self) -> int:
        """Return the number of missing bytes. ValueError if the greeting is too long."""
        if len(self.received) < ANSWER.size:
            return ANSWER.size - len(self.received)
        _, _, length = ANSWER.unpack_from(self.received)
        if length > _LONGEST_GREETING:
            raise ValueError(f"a greeting cannot have {length} bytes")
        return int(ANSWER.size + length - len(self.received))


class AuthenticatedListener:
    """Accepts clients that know the secret. Other clients are closed, and delay no rank."""

    def __init__(self, listener: socket.socket, secret: str) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._secret = secret
        self._clients: deque[_Client] = deque()  # the oldest first
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)

    def admit(self, timeout: float) -> tuple[socket.socket, bytes] | None:
        """Return an authenticated connection with its greeting; None if a client was refused. TimeoutError if neither."""
        limit = time.monotonic() + timeout
        while True:
            first = min((client.until for client in self._clients), default=limit)
            ready = self._selector.select(max(0.0, min(first, limit) - time.monotonic()))
            refused = self._end_late_ones()
            for key, _ in ready:
                if key.fileobj is self._listener:
                    refused |= not self._open()
                    continue
                client = key.data
                if client not in self._clients:
                    continue  # closed since then: too late, or too many clients
                try:
                    greeting = self._read(client)
                except (OSError, ValueError):
                    self._end(client)
                    refused = True
                    continue
                if greeting is not None:
                    self._forget(client)
                    client.connection.setblocking(True)
                    return client.connection, greeting
            if refused:
                return None
            if time.monotonic() >= limit:
                raise TimeoutError(f"no authenticated rank connected within {timeout:g} s")

    def _open(self) -> bool:
        """Accept a new client. False if it, or an older one in its place, was closed."""
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno not in _NO_ROOM:
                return True  # the client has closed before it was accepted
            if not self._clients:
                raise
            self._end(self._clients[0])
            return False
        if not _is_own_user(connection):
            connection.close()
            return False
        connection.setblocking(False)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = _Client(connection, secrets.token_bytes(NONCE), time.monotonic() + _SECONDS)
        self._clients.append(client)
        self._selector.register(connection, selectors.EVENT_READ, client)
        try:
            connection.sendall(client.nonce)
        except OSError:
            self._end(client)
            return False
        if len(self._clients) > _MOST:
            self._end(self._clients[0])
            return False
        return True

    def _read(self, client: _Client) -> bytes | None:
        """Read from a client; return the greeting once it is complete. ValueError if the proof is wrong."""
        piece = client.connection.recv(client.missing())
        if not piece:
            raise ValueError("the client closed the connection")
        client.received += piece
        if client.missing():
            return None
        said, nonce, _ = ANSWER.unpack_from(client.received)
        greeting = bytes(client.received[ANSWER.size :])
        if not hmac.compare_digest(said, proof(self._secret, b"rank", client.nonce, nonce, greeting)):
            client.connection.sendall(REFUSED)
            raise ValueError("wrong secret")
        client.connection.sendall(proof(self._secret, b"driver", nonce))
        return greeting

    def _end_late_ones(self) -> bool:
        late = [client for client in self._clients if client.until <= time.monotonic()]
        for client in late:
            self._end(client)
        return bool(late)

    def _end(self, client: _Client) -> None:
        self._forget(client)
        client.connection.close()

    def _forget(self, client: _Client) -> None:
        self._clients.remove(client)
        self._selector.unregister(client.connection)

    def close(self) -> None:
        for client in list(self._clients):
            self._end(client)
        self._selector.close()
        self._listener.close()


def _is_own_user(connection: socket.socket) -> bool:
    """Whether the client's process belongs to this user or to root. Only Unix sockets tell; True for others."""
    if connection.family != socket.AF_UNIX or sys.platform != "linux":
        return True
    _, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return user in (os.geteuid(), 0)
