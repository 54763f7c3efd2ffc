"""Consoles of commands: safe output of adapters' texts, and progress bars on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.segment import Segment

from ..printable_text import LONGEST_LINE, cut, printable

_WIDTH_OF_LOGS = 140


class SafeConsole(Console):
    """A console that raises BrokenPipeError when its reader closes, and escapes texts of adapters."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Render texts of adapters safely: control characters become escapes, and long lines are cut."""
        for segment in super().render(renderable, options):
            text = segment.text
            if segment.control or (text.isprintable() and len(text) <= LONGEST_LINE):
                yield segment
            else:  # a segment may hold several lines
                lines = (cut(line, LONGEST_LINE) for line in printable(text).split("\n"))
                yield Segment("\n".join(lines), segment.style)


def console() -> Console:
    """A console as wide as the terminal; in a log file, wide enough for the longest names."""
    made = SafeConsole(highlight=False)
    return made if at_terminal(made) else SafeConsole(highlight=False, width=max(made.width, _WIDTH_OF_LOGS))


def error_console() -> Console:
    """A console for standard error: progress beside an output that others read."""
    return SafeConsole(highlight=False, stderr=True)


def at_terminal(console: Console) -> bool:
    """Whether the output is an interactive terminal. A CI log may have colours (FORCE_COLOR), but no progress bars."""
    return console.is_terminal and console.file.isatty()


def progress_bar(console: Console, *, disable: bool = False) -> Progress:
    """A bar with the number of things done, the time, and the description of the current one; it vanishes at the end."""
    columns = (BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    return Progress(*columns, console=console, transient=True, disable=disable)
