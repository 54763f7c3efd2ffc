"""Progress of a search: a bar with the current step on a terminal, a line now and then in a log."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from .console import at_terminal, progress_bar
from .log_lines import LogLines


class SearchProgress(AbstractContextManager["SearchProgress"]):
    """Receives the name of each stage, and each step before it begins. A log gets a line at a stage's first step, and then
    now and then.
    """

    def __init__(self, console: Console) -> None:
        self._lines = LogLines(console)
        self._what = ""
        self._bar: Progress | None = None
        if at_terminal(console):
            self._bar = progress_bar(console)
            self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> Self:
        (self._bar or self._lines).__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        (self._bar or self._lines).__exit__(*error)

    def stage(self, what: str) -> None:
        """what: the things that are counted from now on, such as "promises tried"."""
        self._what = what
        self._lines.next_at_once()

    def begin(self, done: int, total: int, text: str) -> None:
        """A step begins, after `done` of `total`."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, description=escape(f"{self._what}; now {text}"))
        else:
            self._lines.tell(lambda seconds: f"  {done} of {total} {self._what}, {seconds:.0f} s; now {text}")
