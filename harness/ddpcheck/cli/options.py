"""What several commands share: parsing of options, usage errors, the console."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from ..launchers.base import Launcher
from ..printable import cut, printable
from ..running.adapter_lookup import UnusableAdapter
from ..running.suggestions import one_of
from ..storage.files import UnreadableFile, UnwritableFile
from ..storage.results import visible_cores

LAUNCHERS = {
    "processes": ("processes:Processes", "Child processes with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set."),
    "mpiexec": ("mpi:Mpiexec", "mpiexec of MPICH, Open MPI or Intel MPI, with the flags that each needs."),
    "torchrun": ("torchrun:Torchrun", "torch's elastic agent, as torchrun does it."),
    "spawn": (
        "multiprocess:spawn",
        "Fresh processes of Python's multiprocessing, as torch.multiprocessing.spawn has them.",
    ),
    "fork": (
        "multiprocess:fork",
        "Forked by a process that has imported the adapter: ranks inherit what the import made.",
    ),
    "forkserver": (
        "multiprocess:forkserver",
        "Forked by multiprocessing's server, which has not imported the adapter.",
    ),
}
ATTACHED = ("attached", "Ranks that you start yourself, on any hosts: ddpcheck check ADAPTER --attach HOST:PORT")
_WIDTH_OF_LOGS = 140
_LONGEST_LINE = 4000
"""Characters of one line that are shown; files keep them all."""


def launcher_named(name: str) -> Launcher:
    """ValueError if there is none."""
    place, _, attribute = LAUNCHERS[one_of(name, LAUNCHERS, "launcher")][0].partition(":")
    made: Launcher = getattr(importlib.import_module(f"ddpcheck.launchers.{place}"), attribute)()
    return made


def usual_sessions() -> int:
    """One more than there are cores: ranks often wait for one another."""
    return visible_cores() + 1


@contextmanager
def usage_errors() -> Iterator[None]:
    """What the user named wrongly is a usage error, without a traceback."""
    try:
        yield
    except (UnusableAdapter, UnreadableFile, UnwritableFile, ValueError) as error:
        raise click.UsageError(str(error)) from error


class ShownConsole(Console):
    """A console whose reader may go, which is a BrokenPipeError, and which shows texts that are not ours."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Texts of adapters are shown, not obeyed: control characters become escapes, and long lines are cut."""
        for segment in super().render(renderable, options):
            text = segment.text
            plain = segment.control or text == "\n" or (text.isprintable() and len(text) <= _LONGEST_LINE)
            yield segment if plain else Segment(cut(printable(text), _LONGEST_LINE), segment.style)


def console() -> Console:
    """As wide as the terminal; a log file is wide enough for the longest names."""
    made = ShownConsole(highlight=False)
    return made if at_terminal(made) else ShownConsole(highlight=False, width=max(made.width, _WIDTH_OF_LOGS))


def at_terminal(console: Console) -> bool:
    """Whether somebody looks on. A CI's log may have colours, by FORCE_COLOR, but no bars that move."""
    return console.is_terminal and console.file.isatty()


def named_reasons(texts: tuple[str, ...]) -> dict[str, str]:
    """NAME=REASON options as a mapping. ValueError if one has no reason."""
    found = {}
    for text in texts:
        name, separator, reason = text.partition("=")
        if not separator or not reason.strip():
            raise ValueError(f"--expect-failure {text!r} should be NAME=REASON")
        found[name.strip()] = reason.strip()
    return found
