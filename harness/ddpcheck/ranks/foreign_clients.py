"""Programs that do not belong to the world, and call whoever listens: a port scanner, an old worker, an attacker.

One sends nothing and stays. One sends a line of HTTP and bytes. The others send a pickle that makes a file when it is
loaded: bare, and behind a length in the usual forms.
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

_LENGTHS = ("", "!I", "!Q", "<I", "<Q")
_ROOM = 4096
"""A pickle is followed by zeros up to this size, so that a reader of a fixed size gets it whole."""
_CONNECT_WITHIN = 0.2
_LISTENING = "0A"


class _Opens:
    """An object whose pickle creates a file when loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (str(self.path), "w")


class ForeignClients:
    """They call each address once, and once more if they forget. After leave() `ran` says whether somebody loaded what they
    sent.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.listening: dict[int, set[str]] = {}
        self.ran = False
        self._called: set[tuple[str, int]] = set()
        self._open = ExitStack()
        folder = self._open.enter_context(tempfile.TemporaryDirectory(prefix="ddp-"))
        self._file = Path(folder, "x")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def forget(self) -> None:
        """The addresses that were called."""
        self._called.clear()

    def look_around(self, pids: dict[int, int], *, call: bool) -> None:
        """Find out where the ranks (pid by rank) listen, and call those that were not called yet."""
        for rank, pid in pids.items():
            for host, port in listening(pid):
                self.listening.setdefault(rank, set()).add(f"{host}:{port}")
                if call and (host, port) not in self._called:
                    self._called.add((host, port))
                    self._call({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)

    def _call(self, host: str, port: int) -> None:
        attack = pickle.dumps(_Opens(self._file), 0)
        said = [struct.pack(length, len(attack)) + attack if length else attack for length in _LENGTHS]
        said = [text.ljust(_ROOM, b"\0") for text in said]
        for text in (*said, b"GET / HTTP/1.0\r\n\r\n" + b"\xff" * 100, b""):
            with suppress(OSError):  # it may have left, or hang up
                connection = socket.create_connection((host, port), _CONNECT_WITHIN)
                self._open.callback(connection.close)
                self.calls += 1
                if text:
                    connection.sendall(text)
                    connection.shutdown(socket.SHUT_WR)

    def leave(self) -> None:
        """Hang up."""
        self.ran = self.ran or self._file.exists()
        self._open.close()


def listening(pid: int) -> Iterator[tuple[str, int]]:
    """Address and port of every TCP socket on which the process listens; nothing where /proc does not tell."""
    try:
        files = [_target(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
        tables = [Path(f"/proc/{pid}/net/{name}").read_text() for name in ("tcp", "tcp6")]
    except OSError:
        return
    own = {name.removeprefix("socket:[").removesuffix("]") for name in files if name.startswith("socket:")}
    for table in tables:
        for line in table.splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING and fields[9] in own:
                host, port = fields[1].split(":")
                yield _address(host), int(port, 16)


def _target(entry: Path) -> str:
    """The target of the link; empty if the file was closed meanwhile."""
    try:
        return str(entry.readlink())
    except OSError:
        return ""


def _address(text: str) -> str:
    """The kernel shows addresses as native 32-bit words."""
    words = [int(text[start : start + 8], 16) for start in range(0, len(text), 8)]
    return socket.inet_ntop(
        socket.AF_INET6 if len(words) > 1 else socket.AF_INET, struct.pack(f"={len(words)}I", *words)
    )
