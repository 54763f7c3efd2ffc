"""Connections that have not proved yet that they belong to the session: heard side by side, limited in time and number.

The side that listens sends a nonce. The other answers with a proof, a nonce of its own, and its greeting. The proof is an
HMAC-SHA256 by the session's secret over both nonces and the greeting, so an answer that somebody has recorded proves nothing.
Then the side that listens proves that it knows the secret, too.
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
    """The proof, which only a client that knows the secret can compute."""
    return hmac.digest(secret.encode(), b"".join((role, *parts)), "sha256")


@dataclass(eq=False)
class _Knock:
    connection: socket.socket
    nonce: bytes
    until: float
    heard: bytearray = field(default_factory=bytearray)

    def missing(self) -> int:
        """How many bytes must come; ValueError if the greeting is too long."""
        if len(self.heard) < ANSWER.size:
            return ANSWER.size - len(self.heard)
        _, _, length = ANSWER.unpack_from(self.heard)
        if length > _LONGEST_GREETING:
            raise ValueError(f"a greeting cannot have {length} bytes")
        return int(ANSWER.size + length - len(self.heard))


class AuthenticatedListener:
    """Accepts clients that know the secret. Other clients are closed, and delay no rank."""

    def __init__(self, listener: socket.socket, secret: str) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._secret = secret
        self._knocks: deque[_Knock] = deque()  # the oldest first
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)

    def admit(self, timeout: float) -> tuple[socket.socket, bytes] | None:
        """A connection that has proved itself, with its greeting. None if one was turned away; TimeoutError if neither."""
        limit = time.monotonic() + timeout
        while True:
            first = min((knock.until for knock in self._knocks), default=limit)
            ready = self._selector.select(max(0.0, min(first, limit) - time.monotonic()))
            turned_away = self._end_late_ones()
            for key, _ in ready:
                if key.fileobj is self._listener:
                    turned_away |= not self._open()
                    continue
                knock = key.data
                if knock not in self._knocks:
                    continue  # it was late, or made room
                try:
                    greeting = self._hear(knock)
                except (OSError, ValueError):
                    self._end(knock)
                    turned_away = True
                    continue
                if greeting is not None:
                    self._forget(knock)
                    knock.connection.setblocking(True)
                    return knock.connection, greeting
            if turned_away:
                return None
            if time.monotonic() >= limit:
                raise TimeoutError(f"no authenticated rank connected within {timeout:g} s")

    def _open(self) -> bool:
        """Whether a new client may stay for now."""
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno not in _NO_ROOM:
                return True  # it hung up while it waited
            if not self._knocks:
                raise
            self._end(self._knocks[0])
            return False
        if not _may_knock(connection):
            connection.close()
            return False
        connection.setblocking(False)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        knock = _Knock(connection, secrets.token_bytes(NONCE), time.monotonic() + _SECONDS)
        self._knocks.append(knock)
        self._selector.register(connection, selectors.EVENT_READ, knock)
        try:
            connection.sendall(knock.nonce)
        except OSError:
            self._end(knock)
            return False
        if len(self._knocks) > _MOST:
            self._end(self._knocks[0])
            return False
        return True

    def _hear(self, knock: _Knock) -> bytes | None:
        """The greeting once all of it is there. ValueError if it proves nothing."""
        piece = knock.connection.recv(knock.missing())
        if not piece:
            raise ValueError("it hung up")
        knock.heard += piece
        if knock.missing():
            return None
        said, nonce, _ = ANSWER.unpack_from(knock.heard)
        greeting = bytes(knock.heard[ANSWER.size :])
        if not hmac.compare_digest(said, proof(self._secret, b"rank", knock.nonce, nonce, greeting)):
            knock.connection.sendall(REFUSED)
            raise ValueError("wrong secret")
        knock.connection.sendall(proof(self._secret, b"driver", nonce))
        return greeting

    def _end_late_ones(self) -> bool:
        late = [knock for knock in self._knocks if knock.until <= time.monotonic()]
        for knock in late:
            self._end(knock)
        return bool(late)

    def _end(self, knock: _Knock) -> None:
        self._forget(knock)
        knock.connection.close()

    def _forget(self, knock: _Knock) -> None:
        self._knocks.remove(knock)
        self._selector.unregister(knock.connection)

    def close(self) -> None:
        for knock in list(self._knocks):
            self._end(knock)
        self._selector.close()
        self._listener.close()


def _may_knock(connection: socket.socket) -> bool:
    """Whether the process at the other end belongs to this user, or to the system's: the kernel tells for a Unix socket."""
    if connection.family != socket.AF_UNIX or sys.platform != "linux":
        return True
    _, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return user in (os.geteuid(), 0)
