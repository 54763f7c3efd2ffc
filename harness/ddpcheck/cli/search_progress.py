"""Progress of a search: a bar with the current step on a terminal, a line now and then in a log."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .log_lines import LogLines
from .options import at_terminal


class SearchProgress(AbstractContextManager["SearchProgress"]):
    """Receives the name of each stage, and each step before it begins. A log gets a line at a stage's first step, and then
    now and then.
    """

    def __init__(self, console: Console) -> None:
        self._lines = LogLines(console)
        self._what = ""
        self._bar: Progress | None = None
        if at_terminal(console):
            columns = (BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
            self._bar = Progress(*columns, console=console, transient=True)
            self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> Self:
        (self._bar or self._lines).__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        (self._bar or self._lines).__exit__(kind, error, where)

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
