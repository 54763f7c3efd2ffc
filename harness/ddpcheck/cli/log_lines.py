"""Progress lines of a log: one now and then, since a log has no place that could be written anew."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console

_SECONDS_BETWEEN = 20.0


class LogLines:
    """Prints a line if none was printed for 20 seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self.next_at_once()

    def next_at_once(self) -> None:
        """Let the next line be printed at once."""
        self._told = -_SECONDS_BETWEEN

    def tell(self, line: Callable[[float], str]) -> None:
        """Print the line, if it is time. line: makes it from the seconds since the beginning."""
        seconds = time.monotonic() - self._began
        if seconds - self._told >= _SECONDS_BETWEEN:
            self._told = seconds
            self._console.print(line(seconds), style="dim", markup=False, soft_wrap=True)
