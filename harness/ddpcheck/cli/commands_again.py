"""The command that runs a failure again, for pages that are read without the command line that made them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import click
from click.core import ParameterSource

from ..relative_paths import relative
from ..running.failure_files import replay_command
from ..storage.failing_jobs import failure_file
from ..verdict import Verdict


def given_options(context: click.Context, names: Collection[str]) -> list[str]:
    """The options with these parameter names that the user gave, as words of a command line."""
    words: list[str] = []
    for parameter in context.command.params:
        name = parameter.name or ""
        if name not in names or context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        value, option = context.params[name], max(parameter.opts, key=len)
        values = () if value is True else value if isinstance(value, tuple) else (value,)
        words += [option, *map(str, values)]
    return words


def check_again(references: Mapping[str, str], failures: Path, options: Collection[str]) -> Callable[[Verdict], str]:
    """The command for each failure: replays its Job, or runs its check if the failure has no Job.

    references: of the adapters, by name. failures: the folder of the failing Jobs. options: the settings of the run.
    """

    def command(verdict: Verdict) -> str:
        file = failure_file(failures, verdict)
        if file is not None and file.exists():
            return replay_command(file)
        words = ["ddpcheck", "check", relative(references[verdict.adapter])]
        words += ["--world-size", str(verdict.world_size), "--check", verdict.check]
        return shlex.join([*words, *options])

    return command
