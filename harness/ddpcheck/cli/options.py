"""Helpers shared by commands: option parsing, usage errors, the console."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from ..printable_text import LONGEST_LINE, cut, printable
from ..running.adapter_lookup import UnusableAdapter
from ..storage.environment import visible_cores
from ..storage.failures_folder import FAILURES_FOLDER
from ..storage.files import UnreadableFile, UnwritableFile

F = TypeVar("F", bound=Callable[..., Any])
ATTACHED = ("attached", "Ranks that you start yourself, on any hosts: ddpcheck check ADAPTER --attach HOST:PORT")
_WIDTH_OF_LOGS = 140


def chosen_checks(command: F) -> F:
    """Add the option --check to a command."""
    option: Callable[[F], F] = click.option(
        "-c",
        "--check",
        "patterns",
        multiple=True,
        help="Run only this family, or checks with this text in their names. Repeatable.",
    )
    return option(command)


def failures_folder(help: str) -> Callable[[F], F]:
    """The option --failures."""
    return click.option(
        "--failures",
        default=FAILURES_FOLDER,
        show_default=True,
        type=click.Path(path_type=Path, file_okay=False),
        help=help,
    )


def default_sessions() -> int:
    """CPU count + 1: ranks often wait for one another, so one more world size than cores keeps the cores busy."""
    return visible_cores() + 1


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn a wrong name into a usage error without a traceback."""
    try:
        yield
    except (UnusableAdapter, UnreadableFile, UnwritableFile, ValueError) as error:
        raise click.UsageError(str(error)) from error


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


def reasons_by_check(texts: tuple[str, ...]) -> dict[str, str]:
    """NAME=REASON options as a mapping. ValueError if one has no reason."""
    found = {}
    for text in texts:
        name, separator, reason = text.partition("=")
        if not separator or not reason.strip():
            raise ValueError(f"--expect-failure {text!r} should be NAME=REASON")
        found[name.strip()] = reason.strip()
    return found
