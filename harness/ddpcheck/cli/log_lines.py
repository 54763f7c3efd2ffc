"""Progress lines of a log: one now and then, since a log has no place that could be written anew."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Self

from rich.console import Console

_SECONDS_BETWEEN = 20.0
_LOOK_EVERY = 1.0


class LogLines(AbstractContextManager["LogLines"]):
    """Prints a line if none was printed for some seconds. As a context it also repeats the last line, with its new
    seconds, so that a long step is no silence.

    at_once: print the first line at once, instead of after these seconds.
    """

    def __init__(self, console: Console, *, seconds_between: float = _SECONDS_BETWEEN, at_once: bool = True) -> None:
        self._console = console
        self._between = seconds_between
        self._began = time.monotonic()
        self._told = -seconds_between if at_once else 0.0
        self._line: Callable[[float], str] | None = None
        self._ended = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        threading.Thread(target=self._repeat, name="log lines", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:  # no line after the end
            self._ended.set()

    def next_at_once(self) -> None:
        """Let the next line be printed at once, and repeat the last one no more."""
        with self._lock:
            self._line = None
            self._told = -self._between

    def tell(self, line: Callable[[float], str]) -> None:
        """Print the line, if it is time. line: makes it from the seconds since the beginning."""
        with self._lock:
            self._line = line
            self._print_if_due()

    def _repeat(self) -> None:
        while not self._ended.wait(max(_LOOK_EVERY, self._told + self._between - self._seconds())):
            with self._lock:
                if self._ended.is_set():
                    return
                try:
                    self._print_if_due()
                except OSError:  # the reader is gone, or the disk is full: the command itself reports this
                    return

    def _print_if_due(self) -> None:
        seconds = self._seconds()
        if self._line is not None and seconds - self._told >= self._between:
            self._told = seconds
            self._console.print(self._line(seconds), style="dim", markup=False, soft_wrap=True)

    def _seconds(self) -> float:
        return time.monotonic() - self._began
