"""The output of a rank: live on the screen up to a limit; a file has all of it once the limit is passed.

The limit counts what Python code writes to standard output and standard error. Child processes and C libraries write past
it.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from ..storage.failures_folder import file_of_rank
from ..storage.long_texts import LARGEST_TEXT

MOST_SHOWN = 1 << 20
"""Bytes of one rank that are shown."""


@contextmanager
def limited_output(rank: int | None) -> Iterator[None]:
    """Limit what this process shows of its output. rank: None if there is one only."""
    before = sys.stdout, sys.stderr
    printed = _Printed(rank)
    sys.stdout, sys.stderr = (_limited(stream, printed) for stream in before)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before
        printed.close()


def unlimited(stream: TextIO) -> TextIO:
    """The stream behind a limited one, for lines that must be shown; any other stream itself."""
    buffer = getattr(stream, "buffer", None)
    return buffer.screen if isinstance(buffer, _Counted) else stream


def _limited(stream: TextIO, printed: _Printed) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):  # closed, or replaced by an object that has no bytes
        return stream
    return io.TextIOWrapper(
        _Counted(stream, printed),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


class _Counted(io.BufferedIOBase):
    """Bytes for a screen, which _Printed counts."""

    def __init__(self, screen: io.TextIOWrapper, printed: _Printed) -> None:
        super().__init__()
        self.screen, self._printed = screen, printed

    @property
    def name(self) -> str:
        return self.screen.name

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.screen.fileno()

    def isatty(self) -> bool:
        return self.screen.isatty()

    def write(self, data: Any) -> int:
        self._printed.add(bytes(data), self.screen)
        return len(data)


class _Printed:
    """The output of one rank. Beyond the limit it goes to a file at once, so that a rank that is killed leaves it."""

    def __init__(self, rank: int | None) -> None:
        self._rank = rank
        self._lock = threading.RLock()  # both streams of all threads meet here
        self._shown = bytearray()
        self._is_cut = False
        self._file: io.FileIO | None = None
        self._left = LARGEST_TEXT

    def add(self, data: bytes, screen: io.TextIOWrapper) -> None:
        with self._lock:
            room = 0 if self._is_cut else MOST_SHOWN - len(self._shown)
            while 0 < room < len(data) and data[room] & 0xC0 == 0x80:  # inside a character in UTF-8
                room -= 1
            self._shown += data[:room]
            screen.buffer.write(data[:room])
            if len(data) > room and not self._is_cut:
                self._is_cut = True
                screen.buffer.write(f"\n{self._cut()}\n".encode())
                self._keep(bytes(self._shown))
            self._keep(data[room:])
            screen.flush()

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _cut(self) -> str:
        """Open the file; returns a sentence for the screen."""
        path = file_of_rank("train-output", self._rank)
        name = "this process" if self._rank is None else f"rank {self._rank}"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            self._file = io.FileIO(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w")
        except OSError as error:
            return f"{name} printed more than {MOST_SHOWN:,} bytes; the rest is not shown, and not kept: {error}"
        return f"{name} printed more than {MOST_SHOWN:,} bytes; the rest is not shown. The first {LARGEST_TEXT >> 20} MiB: {path}"

    def _keep(self, data: bytes) -> None:
        """Write to the file, if there is one, up to its limit."""
        if self._file is not None and self._left and data:
            with suppress(OSError):  # such as on a full disk: training goes on
                self._left -= self._file.write(data[: self._left])
