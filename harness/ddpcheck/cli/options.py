"""Options that several commands have, and usage errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from ..running.adapter_lookup import UnusableAdapter
from ..running.profiles import PROFILES
from ..storage.environment import visible_cores
from ..storage.failures_folder import FAILURES_FOLDER
from ..storage.files import UnreadableFile, UnwritableFile
from .number_options import SECONDS, world_sizes

F = TypeVar("F", bound=Callable[..., Any])
FILE = click.Path(path_type=Path, dir_okay=False)
"""The type of an option that names a file."""


def chosen_checks(command: F) -> F:
    """The option --check."""
    option = click.option(
        "-c",
        "--check",
        "patterns",
        multiple=True,
        help="Run only this family, or checks with this text in their names. Repeatable.",
    )
    return option(command)


def chosen_sizes(default: str) -> Callable[[F], F]:
    """The option --world-size. default: a sentence on it."""
    return click.option(
        "-w",
        "--world-size",
        "world_sizes",
        callback=world_sizes,
        help=f"World sizes, such as 1,2,4 or 1-4. {default}",
    )


def chosen_profile(default: str, help: str = "How many Jobs each check draws.") -> Callable[[F], F]:
    """The option --profile."""
    return click.option("--profile", default=default, show_default=True, type=click.Choice(list(PROFILES)), help=help)


def chosen_deadline(default: float) -> Callable[[F], F]:
    """The option --deadline."""
    return click.option(
        "--deadline",
        type=SECONDS,
        default=default,
        show_default=True,
        help="Seconds until an operation counts as hung.",
    )


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


def reasons_by_check(texts: tuple[str, ...]) -> dict[str, str]:
    """NAME=REASON options as a mapping. ValueError if one has no reason."""
    found = {}
    for text in texts:
        name, separator, reason = text.partition("=")
        if not separator or not reason.strip():
            raise ValueError(f"--expect-failure {text!r} should be NAME=REASON")
        found[name.strip()] = reason.strip()
    return found
