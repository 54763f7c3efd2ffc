"""Progress of a sweep: a bar with the current point on a terminal, one line per launch in a log."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.markup import escape

from ddpcheck.cli.console import progress_bar


class Display:
    """Implements sweep.Progress."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = progress_bar(console, disable=not console.is_terminal)
        self._task = self._bar.add_task("")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def expect(self, points: int, text: str) -> None:
        self._bar.update(self._task, total=points)
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def begin(self, what: str) -> None:
        self._bar.update(self._task, description=escape(what))

    def done(self, points: int) -> None:
        self._bar.advance(self._task, points)

    def end_session(self, text: str) -> None:
        if not self._console.is_terminal:
            self._console.print(text, markup=False, soft_wrap=True)
