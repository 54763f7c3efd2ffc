"""How far a run is: a bar with the current check on a terminal, one line for each world size in a log."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..run import Item
from ..verdict import Verdict
from .show import ranks, summary


class Display(AbstractContextManager["Display"]):
    """Told of each item as it begins, and of each verdict as it comes."""

    def __init__(self, console: Console, total: int) -> None:
        self.console = console
        self._stack = ExitStack()
        self._group: list[Verdict] = []
        self._since = time.monotonic()
        self._bar: Progress | None = None
        if console.is_terminal:
            columns = (BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
            self._bar = Progress(*columns, console=console, transient=True)
            self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._stack.enter_context(self._bar)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._end_group()
        self._stack.close()

    def begin(self, item: Item) -> None:
        if self._bar is not None:
            text = f"{escape(item.adapter.name)}, {ranks(item.world_size)}: {escape(item.check.name)}"
            self._bar.update(self._task, description=text)

    def add(self, verdict: Verdict) -> None:
        if self._group and _place(self._group[0]) != _place(verdict):
            self._end_group()
        self._group.append(verdict)
        if self._bar is not None:
            self._bar.advance(self._task)

    def _end_group(self) -> None:
        group, since = self._group, self._since
        self._group, self._since = [], time.monotonic()
        if group and self._bar is None:
            adapter, size = _place(group[0])
            self.console.print(
                f"{escape(adapter)}, {ranks(size)}: {summary(group, time.monotonic() - since)}", soft_wrap=True
            )


def _place(verdict: Verdict) -> tuple[str, int]:
    return verdict.adapter, verdict.world_size
