"""Clients that do not belong to the world and connect to every listening rank, as a port scanner or an attacker does.

One sends nothing and stays. One sends a line of HTTP and bytes. The others send a pickle that creates a file when it is
loaded: bare, and behind a length in the usual formats.
"""

from __future__ import annotations

import pickle
import socket
import struct
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

from ..launchers.process_handles import open_files

_LENGTHS = ("", "!I", "!Q", "<I", "<Q")
_ROOM = 4096
"""A pickle is padded with zeros to this size, so that a reader of a fixed size gets it whole."""
_CONNECT_WITHIN = 0.2
_LISTENING = "0A"


class _Opens:
    """An object whose pickle creates a file when loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (str(self.path), "w")


class ForeignClients:
    """Connect to each address once, and once more after forget(). `ran`, set by leave(): a rank loaded the pickle."""

    def __init__(self) -> None:
        self.calls: int = 0
        self.listening: dict[int, set[str]] = {}
        self.ran: bool = False
        self._called: set[tuple[str, int]] = set()
        self._open = ExitStack()
        folder = self._open.enter_context(tempfile.TemporaryDirectory(prefix="ddp-"))
        self._file = Path(folder, "x")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def forget(self) -> None:
        """Forget the addresses that were called."""
        self._called.clear()

    def find_listening_ranks(self, pids: dict[int, int], *, call: bool) -> None:
        """Record the addresses where ranks (pid by rank) listen, and call new ones if `call`."""
        for rank, pid in pids.items():
            for host, port in listening_addresses(pid):
                self.listening.setdefault(rank, set()).add(address_of(host, port))
                if call and (host, port) not in self._called:
                    self._called.add((host, port))
                    self._call({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)

    def _call(self, host: str, port: int) -> None:
        attack = pickle.dumps(_Opens(self._file), 0)
        messages = [struct.pack(length, len(attack)) + attack if length else attack for length in _LENGTHS]
        messages = [text.ljust(_ROOM, b"\0") for text in messages]
        for text in (*messages, b"GET / HTTP/1.0\r\n\r\n" + b"\xff" * 100, b""):
            with suppress(OSError):  # the rank may have closed the socket
                connection = socket.create_connection((host, port), _CONNECT_WITHIN)
                self._open.callback(connection.close)
                self.calls += 1
                if text:
                    connection.sendall(text)
                    connection.shutdown(socket.SHUT_WR)

    def leave(self) -> None:
        """Close all connections."""
        self.ran = self.ran or self._file.exists()
        self._open.close()


def address_of(host: str, port: int) -> str:
    """As in "127.0.0.1:29500" and "[::]:29500"."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listening_addresses(pid: int) -> Iterator[tuple[str, int]]:
    """Yield address and port of every TCP socket on which the process listens, as far as /proc shows them."""
    try:
        tables = [Path(f"/proc/{pid}/net/{name}").read_text() for name in ("tcp", "tcp6")]
    except OSError:
        return
    own = {name.removeprefix("socket:[").removesuffix("]") for _, name in open_files(pid) if name.startswith("socket:")}
    for table in tables:
        for line in table.splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING and fields[9] in own:
                host, port = fields[1].split(":")
                yield _address(host), int(port, 16)


def _address(text: str) -> str:
    """Convert an address of /proc/PID/net/tcp: hexadecimal, in 32-bit words of the host's byte order."""
    words = [int(text[start : start + 8], 16) for start in range(0, len(text), 8)]
    return socket.inet_ntop(
        socket.AF_INET6 if len(words) > 1 else socket.AF_INET, struct.pack(f"={len(words)}I", *words)
    )
