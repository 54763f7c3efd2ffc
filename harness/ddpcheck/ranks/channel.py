"""The harness's own control channel between driver and ranks: framed, authenticated, and never the implementation's.

An address is `unix:NAME` (an abstract Unix socket, Linux: it has no file, so nothing can be left behind) or `tcp:HOST:PORT`.
Processes of other users are refused on a Unix socket. Both sides prove that they know the session's secret before
anything else is read (authentication.py). A frame is a 64-bit length and that many bytes.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import struct
import sys
import time

from .authentication import ANSWER, NONCE, PROOF, REFUSED, AuthenticatedListener, proof

CONTROL, SECRET, SECRET_FILE = "DDPCHECK_CONTROL", "DDPCHECK_SECRET", "DDPCHECK_SECRET_FILE"
"""Environment variables of a rank: the driver's address, and the secret or the file that holds it."""

_LENGTH = struct.Struct("!Q")
_LARGEST = 1 << 40
_READ = 1 << 14
_MOST_AT_ONCE = 1 << 28
"""Largest frame that is allocated in advance. A larger one grows as its bytes arrive, so a false length costs nothing."""
_RECV = socket.socket.recv  # as they were before short_reads.py: the harness's own reads stay whole
_RECV_INTO = socket.socket.recv_into


class ChannelClosed(Exception):
    """The other side has closed the connection."""


class Channel:
    """One connection. Not thread-safe; reads and writes may be on different threads.

    greeting: the first message of the connecting side.
    """

    def __init__(self, connection: socket.socket, greeting: bytes = b"") -> None:
        self.greeting = greeting
        self._connection = connection
        self._buffer = bytearray()
        self._large: bytearray | None = None  # the current frame, if it is larger than one read
        self._filled = 0

    def fileno(self) -> int:
        return self._connection.fileno()

    def settimeout(self, seconds: float | None) -> None:
        self._connection.settimeout(seconds)

    def send(self, frame: bytes) -> None:
        """Send one frame. ChannelClosed if the other side is gone."""
        try:
            if len(frame) <= _READ:
                self._connection.sendall(_LENGTH.pack(len(frame)) + frame)
            else:  # a second call costs less than a copy
                self._connection.sendall(_LENGTH.pack(len(frame)))
                self._connection.sendall(frame)
        except (BrokenPipeError, ConnectionError) as error:
            raise ChannelClosed(str(error)) from error

    def receive(self) -> bytes | bytearray:
        """Receive one frame. ChannelClosed at the end of the stream; TimeoutError after settimeout()."""
        while (frame := self.pop()) is None:
            self.fill()
        return frame

    def fill(self) -> None:
        """Read the bytes that have arrived; wait for at least one."""
        try:
            if self._large is not None:
                count = _RECV_INTO(self._connection, memoryview(self._large)[self._filled :])
                self._filled += count
            else:
                chunk = _RECV(self._connection, _READ)
                count = len(chunk)
                self._buffer += chunk
        except ConnectionError as error:
            raise ChannelClosed(str(error)) from error
        if not count:
            raise ChannelClosed("end of stream")

    def pop(self) -> bytes | bytearray | None:
        """Return a frame that is completely read, or None."""
        if self._large is not None:
            if self._filled < len(self._large):
                return None
            whole, self._large = self._large, None
            return whole
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > _LARGEST:
            raise ChannelClosed(f"a frame cannot have {length} bytes")
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            if _READ < length <= _MOST_AT_ONCE:  # the rest is read directly into the frame
                self._filled = len(self._buffer) - _LENGTH.size
                self._large = bytearray(length)
                self._large[: self._filled] = memoryview(self._buffer)[_LENGTH.size :]
                self._buffer = bytearray()
            return None
        frame = bytes(memoryview(self._buffer)[_LENGTH.size : end])
        del self._buffer[:end]
        return frame

    def close(self) -> None:
        self._connection.close()


_UNIX_SECONDS = 600.0
"""Limit of a rank's connection on the driver's host. The driver answers after it has launched all ranks, and a fork server
may need more than half a minute to import torch on a busy machine. If the driver ends, the connection ends at once.
"""
_TCP_SECONDS = 30.0
"""Limit over TCP, where a wrong address may never answer."""


class Listener:
    """The driver's listening socket. Ranks are given its `address` and `secret`."""

    def __init__(self, host: str | None = None, port: int = 0, secret: str | None = None) -> None:
        """Listen on a Unix socket, or on TCP if `host` is given; port 0 lets the system choose a free one."""
        self.secret: str = secret or secrets.token_hex(32)
        self.address: str
        if host is None and sys.platform == "linux":
            name = f"ddpcheck-{secrets.token_hex(16)}"
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.bind("\0" + name)
            self.address = f"unix:{name}"
        else:
            bound = host or "127.0.0.1"
            family = socket.AF_INET6 if ":" in bound else socket.AF_INET
            self._socket = socket.socket(family, socket.SOCK_STREAM)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((bound, port))
            self.address = f"tcp:{bound}:{self._socket.getsockname()[1]}"
        self._socket.listen(1024)
        self._authenticated = AuthenticatedListener(self._socket, self.secret)

    def fileno(self) -> int:
        return self._socket.fileno()

    def accept(self, timeout: float) -> Channel | None:
        """Return an authenticated connection; None if a client was refused. TimeoutError if neither happens in time.

        Silent clients delay no rank.
        """
        admitted = self._authenticated.admit(timeout)
        return None if admitted is None else Channel(*admitted)

    def close(self) -> None:
        self._authenticated.close()


def connect(address: str, secret: str, greeting: bytes = b"", timeout: float | None = None) -> Channel:
    """Connect to a Listener. ConnectionError if it is gone or does not know the secret; ValueError on a malformed address.

    timeout: seconds until TimeoutError; None takes the limit for this kind of address.
    """
    if timeout is None:
        timeout = _UNIX_SECONDS if address.startswith("unix:") else _TCP_SECONDS
    limit, delay = time.monotonic() + timeout, 0.01
    while True:
        connection = _open(address, max(0.001, limit - time.monotonic()))
        try:
            known = _authenticate(connection, secret, greeting)
        except (ConnectionError, ChannelClosed) as error:  # the driver may have closed it because of too many clients
            connection.close()
            if time.monotonic() + delay > limit:
                raise ConnectionError(
                    f"the driver at {address} closes the connection before it answers: {error}"
                ) from error
            time.sleep(delay)
            delay = min(2 * delay, 0.5)
            continue
        except BaseException:
            connection.close()
            raise
        if known:
            connection.settimeout(None)
            return Channel(connection)
        connection.close()
        raise ConnectionError(f"the driver at {address} does not accept this secret; copy both afresh")


def _open(address: str, timeout: float) -> socket.socket:
    scheme, _, rest = address.partition(":")
    if scheme == "unix":
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout)
            connection.connect("\0" + rest)
        except BaseException:
            connection.close()
            raise
        return connection
    if scheme == "tcp":
        host, _, port = rest.rpartition(":")
        connection = socket.create_connection((host, int(port)), timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection
    raise ValueError(f"control address {address!r} must be unix:NAME or tcp:HOST:PORT")


def _authenticate(connection: socket.socket, secret: str, greeting: bytes) -> bool:
    """Whether both sides know the secret. ChannelClosed if the driver closes before its answer."""
    nonce = _receive_exactly(connection, NONCE)
    own = secrets.token_bytes(NONCE)
    connection.sendall(ANSWER.pack(proof(secret, b"rank", nonce, own, greeting), own, len(greeting)) + greeting)
    answer = _receive_exactly(connection, PROOF)
    return answer != REFUSED and hmac.compare_digest(answer, proof(secret, b"driver", own))


def _receive_exactly(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        chunk = connection.recv(size - len(parts))
        if not chunk:
            raise ChannelClosed("end of stream")
        parts += chunk
    return bytes(parts)
