"""Progress of a run: a bar with the current check on a terminal; in a log one line per world size, and one now and then.

A quiet run has only the latter, more seldom and on standard error.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from ..counted_nouns import counted
from ..running.plan import Item
from ..verdict import Verdict
from .console import at_terminal, error_console, progress_bar
from .log_lines import LogLines
from .verdict_output import summary

_Place = tuple[str, int]  # an adapter's name and a world size
_SECONDS_BETWEEN_QUIET_LINES = 30.0


class Display(AbstractContextManager["Display"]):
    """Receives each item when it starts, from any thread, and each verdict. quiet: shows a line now and then, and that on
    standard error only.
    """

    def __init__(self, console: Console, items: Sequence[Item], *, quiet: bool = False) -> None:
        self.console: Console = console
        self._quiet = quiet
        self._stack = ExitStack()
        self._left = Counter(_place(item) for item in items)
        self._verdicts: dict[_Place, list[Verdict]] = {place: [] for place in self._left}
        self._since: dict[_Place, float] = {}
        self._at_work: dict[_Place, str] = {}
        self._count = len(items)
        self._lines = (
            LogLines(error_console(), seconds_between=_SECONDS_BETWEEN_QUIET_LINES, at_once=False)
            if quiet
            else LogLines(console)
        )
        self._bar: Progress | None = None
        if at_terminal(console) and not quiet:
            self._bar = progress_bar(console)
            self._task = self._bar.add_task("", total=len(items))

    def __enter__(self) -> Self:
        self._stack.enter_context(self._lines if self._bar is None else self._bar)
        return self

    def __exit__(self, *_: object) -> None:
        for place, verdicts in self._verdicts.items():
            if verdicts and self._left[place]:
                self._tell(place)
        self._stack.close()

    def begin(self, item: Item) -> None:
        place = _place(item)
        self._since.setdefault(place, time.monotonic())
        self._at_work[place] = item.check.name
        self._describe()

    def add(self, verdict: Verdict) -> None:
        place = _place(verdict)
        self._verdicts[place].append(verdict)
        self._left[place] -= 1
        if self._bar is not None:
            self._bar.advance(self._task)
        if not self._left[place]:
            self._at_work.pop(place, None)
            self._describe()
            self._tell(place)

    def _describe(self) -> None:
        several = len({adapter for adapter, _ in self._left}) > 1
        at_work = "; ".join(
            f"{adapter}, " * several + f"{counted(size, 'rank')}: {name.removeprefix('check_')}"
            for (adapter, size), name in sorted(dict(self._at_work).items())
        )
        if self._bar is not None:
            self._bar.update(self._task, description=escape(at_work))
        elif at_work:
            done = self._count - self._left.total()
            self._lines.tell(lambda seconds: f"  {done} of {self._count} checks, {seconds:.0f} s; now {at_work}")

    def _tell(self, place: _Place) -> None:
        if self._bar is None and not self._quiet:
            adapter, size = place
            now = time.monotonic()
            seconds = now - self._since.get(place, now)
            told = f"{escape(adapter)}, {counted(size, 'rank')}: {summary(self._verdicts[place], seconds)}"
            self.console.print(told, soft_wrap=True)


def _place(what: Item | Verdict) -> _Place:
    return what.adapter if isinstance(what, Verdict) else what.adapter.name, what.world_size
