"""The harness's own control channel between driver and ranks: framed, authenticated, and never the implementation's.

An address is `unix:NAME` (an abstract Unix socket, Linux: it has no file, so nothing can be left behind) or `tcp:HOST:PORT`.
Both sides prove that they know the session's secret by HMAC-SHA256 over the other's nonce before anything else is read.
A frame is a 64-bit length and that many bytes.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import struct
import sys

_LENGTH = struct.Struct("!Q")
_NONCE = 32
_LARGEST = 1 << 40
_READ = 1 << 18
_RECV = socket.socket.recv  # as it was before short_reads.py: the harness's own reads stay whole


class ChannelClosed(Exception):
    """The other side is gone."""


class Channel:
    """One connection. Not thread-safe; reads and writes may be on different threads."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = bytearray()

    def fileno(self) -> int:
        return self._connection.fileno()

    def settimeout(self, seconds: float | None) -> None:
        self._connection.settimeout(seconds)

    def send(self, frame: bytes) -> None:
        """Send one frame. ChannelClosed if the other side is gone."""
        try:
            self._connection.sendall(_LENGTH.pack(len(frame)) + frame)
        except (BrokenPipeError, ConnectionError) as error:
            raise ChannelClosed(str(error)) from error

    def receive(self) -> bytes:
        """One frame. ChannelClosed at the end of the stream; TimeoutError by settimeout."""
        while (frame := self.pop()) is None:
            self.fill()
        return frame

    def fill(self) -> None:
        """Read what there is, at least one byte."""
        try:
            chunk = _RECV(self._connection, _READ)
        except ConnectionError as error:
            raise ChannelClosed(str(error)) from error
        if not chunk:
            raise ChannelClosed("end of stream")
        self._buffer += chunk

    def pop(self) -> bytes | None:
        """One frame that is already here, or None."""
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > _LARGEST:
            raise ChannelClosed(f"a frame of {length} bytes is no frame")
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        frame = bytes(memoryview(self._buffer)[_LENGTH.size : end])
        del self._buffer[:end]
        return frame

    def close(self) -> None:
        self._connection.close()


class Listener:
    """Where ranks attach. `address` goes to them with the secret."""

    def __init__(self, host: str | None = None, port: int = 0, secret: str | None = None) -> None:
        """Listen locally, or (host given) on TCP; port 0 lets the system choose, so that none is guessed."""
        self.secret = secret or secrets.token_hex(32)
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

    def fileno(self) -> int:
        return self._socket.fileno()

    def accept(self, timeout: float) -> Channel | None:
        """One authenticated connection, or None if a stranger knocked. TimeoutError if nobody did."""
        self._socket.settimeout(timeout)
        connection, _ = self._socket.accept()
        try:
            _tune(connection)
            connection.settimeout(5.0)
            nonce = secrets.token_bytes(_NONCE)
            connection.sendall(nonce)
            answer = _exactly(connection, 2 * _NONCE)
            if not hmac.compare_digest(answer[:_NONCE], _proof(self.secret, b"rank", nonce)):
                raise ChannelClosed("wrong secret")
            connection.sendall(_proof(self.secret, b"driver", answer[_NONCE:]))
            connection.settimeout(None)
        except (OSError, ChannelClosed):
            connection.close()
            return None
        return Channel(connection)

    def close(self) -> None:
        self._socket.close()


def connect(address: str, secret: str, timeout: float = 30.0) -> Channel:
    """Attach to a Listener. ConnectionError if it is not there or does not know the secret; ValueError on a bad
    address.
    """
    scheme, _, rest = address.partition(":")
    if scheme == "unix":
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout)
        connection.connect("\0" + rest)
    elif scheme == "tcp":
        host, _, port = rest.rpartition(":")
        connection = socket.create_connection((host, int(port)), timeout)
        _tune(connection)
    else:
        raise ValueError(f"control address {address!r} must be unix:NAME or tcp:HOST:PORT")
    try:
        nonce = _exactly(connection, _NONCE)
        own = secrets.token_bytes(_NONCE)
        connection.sendall(_proof(secret, b"rank", nonce) + own)
        if not hmac.compare_digest(_exactly(connection, _NONCE), _proof(secret, b"driver", own)):
            raise ChannelClosed("wrong secret")
    except ChannelClosed as error:
        connection.close()
        raise ConnectionError(f"the driver at {address} does not accept this secret; copy both afresh") from error
    connection.settimeout(None)
    return Channel(connection)


def _proof(secret: str, role: bytes, nonce: bytes) -> bytes:
    return hmac.digest(secret.encode(), role + nonce, "sha256")


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        chunk = connection.recv(size - len(parts))
        if not chunk:
            raise ChannelClosed("end of stream")
        parts += chunk
    return bytes(parts)


def _tune(connection: socket.socket) -> None:
    if connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
