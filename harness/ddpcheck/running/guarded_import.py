"""Imports of foreign modules: limited in time and output, and unable to end the process."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn, TextIO

from ..printable_text import cut, printable

IMPORT_SECONDS = 60.0
"""The time limit in seconds for the import of an adapter's module in the driver."""
_PRINTED = 2000
"""Characters that a module may print while it is imported."""
_SOON = 0.001
"""Seconds until the caller's timer fires if it expired during the import; zero would turn it off."""
_AGAIN = 0.5
"""Seconds between two attempts to end an import that catches every exception."""


class ImportEnded(BaseException):
    """The import was ended from outside; the text says why. Not an Exception, so that modules rarely catch it."""


@contextmanager
def guarded_import(name: str, seconds: float) -> Iterator[None]:
    """End the import after `seconds`, or if it would end the process; show the beginning of its output.

    Outside the main thread there is no time limit.
    """
    with _no_exit(), _little_output(name), _limit(seconds):
        yield


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> NoReturn:
        at = traceback.extract_stack(frame)[-1]
        raise ImportEnded(
            f"it did not end within {seconds:g} s, and stood at {at.filename}, line {at.lineno}: {at.line}"
        )

    before = signal.signal(signal.SIGALRM, end)
    start = time.monotonic()
    delay, interval = signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
    try:
        yield
    finally:
        left = max(delay - (time.monotonic() - start), _SOON) if delay else 0.0
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, left, interval)  # the caller's timer, such as that of pytest-timeout


@contextmanager
def _no_exit() -> Iterator[None]:
    process, leave = os.getpid(), os._exit

    def refused(status: int) -> NoReturn:
        if os.getpid() != process:  # a child that the module forked
            leave(status)
        at = traceback.extract_stack()[-2]
        raise ImportEnded(f"it called os._exit({status}) in {at.filename}, line {at.lineno}")

    os._exit = refused
    try:
        yield
    finally:
        os._exit = leave


@contextmanager
def _little_output(name: str) -> Iterator[None]:
    before = sys.stdout, sys.stderr
    out, error = (_Little(stream or io.StringIO()) for stream in before)  # a closed one is None
    sys.stdout, sys.stderr = out, error
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in (out, error):
            stream.end(name)


class _Little(io.TextIOBase):
    """Passes the first characters on, and counts the others."""

    def __init__(self, to: TextIO) -> None:
        self._to, self._left, self._more = to, _PRINTED, 0

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        shown = text[: self._left]
        self._left -= len(shown)
        self._more += len(text) - len(shown)
        self._to.write(shown)
        return len(text)

    def flush(self) -> None:
        self._to.flush()

    def fileno(self) -> int:
        return self._to.fileno()

    def end(self, name: str) -> None:
        if self._more:
            self._to.write(f"\n... {self._more} more characters were cut; {name} printed them while it was imported\n")


def short(error: BaseException) -> str:
    """The text of a module's exception, cut."""
    return cut(printable(str(error)), _PRINTED)
