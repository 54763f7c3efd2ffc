"""Output files of a command: results are shown first, then errors of files that could not be written."""

from __future__ import annotations

from collections.abc import Callable

import click

from ..storage.files import UnwritableFile
from .exit_status import ExitStatus


class RequestedFiles:
    """Writes files one by one; a failure does not stop the others."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def write(self, save: Callable[[], object]) -> None:
        """Call `save`, which raises UnwritableFile if it cannot write."""
        try:
            save()
        except UnwritableFile as error:
            self.problems.append(str(error))

    def status(self, status: int) -> int:
        """The exit status of a command that would end with `status`; prints the files that could not be written."""
        for problem in self.problems:
            click.echo(f"Error: {problem}", err=True)
        return ExitStatus.UNUSABLE if self.problems and status == ExitStatus.WELL else status
