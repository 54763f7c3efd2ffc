"""The command line. Each command is a module that is imported only when it runs, so that `--help` is fast."""

from __future__ import annotations

import importlib
import signal
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import NoReturn

import click

from .. import __version__
from ..scratch_folder import write_no_trial_file
from .exit_status import ExitStatus, run

COMMANDS = {
    "tour": "Check and train the reference implementations that are installed here: see what ddpcheck shows.",
    "check": "Check implementations against every law that they promise to keep.",
    "init": "Write a starter adapter for a torch wrapper, a NumPy communicator or a trainer.",
    "audit": "Audit a training script: does its run on several ranks equal the run of one process?",
    "list": "List adapters, causes, checks, capabilities, launchers or profiles, with a sentence each.",
    "grade": "Check a folder of submissions through one template, and write a table of points by family.",
    "faults": "Check deliberately wrong adapters, and show which check catches each, how soon, and with which cause.",
    "replay": "Run a failing Job again, and show the results of every rank.",
    "doctor": "Show which launchers, packages and adapters are ready here, and how to install the missing ones.",
    "suggest": "Try promises that an adapter does not make, and list those that it seems to keep.",
    "train": "Train a model with an implementation, on any number of ranks.",
    "bench": "Measure collectives and training steps of implementations side by side.",
    "compare": "Compare implementations in turns in one run: all-reduce, training steps, or the cost over MPI.",
    "gate": "Compare two revisions of an implementation: is the new one slower, or does it send more?",
    "project": "Project measured times to more ranks and other links, with the model's errors beside every number.",
    "report": "Make a page with figures of bench results, or an HTML page of check or audit results.",
    "launch": "Start a program on several ranks, or print the commands that start it on several hosts.",
}

# found by the entry points of ddpcheck.commands: the harness imports neither benchmarks nor reports
_ELSEWHERE = frozenset({"bench", "compare", "gate", "project", "report"})
# a submodule `list` would hide the builtin in this package
_MODULES = {"list": "listing"}


class _Commands(click.Group):
    """A group that lists its commands and their sentences without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name in _ELSEWHERE:
            return _loaded(cmd_name)
        module = f"{__name__}.{_MODULES.get(cmd_name, cmd_name)}"
        try:
            command = importlib.import_module(module).command
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
            raise click.ClickException(
                f"this installation has no `ddpcheck {cmd_name}`; install ddpcheck again"
            ) from error
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from ..running.unknown_names import close_names

            raise click.UsageError(f"no command {args[0]!r}; {close_names(args[0], COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _loaded(name: str) -> click.Command:
    found = list(entry_points(group="ddpcheck.commands", name=name))
    if not found:
        raise click.ClickException(f"this installation has no `ddpcheck {name}`; install ddpcheck again")
    command = found[0].load()
    assert isinstance(command, click.Command)
    return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ddpcheck")
def main() -> None:
    """Is this data-parallel training implementation right, and how does it scale?

    Exit status: 0 success; 1 a check or a run failed; 2 the command could not be run as given; 70 ddpcheck itself
    failed; 130, 143 and 129 ended by Ctrl-C, SIGTERM and SIGHUP.
    """
    # the user's folder is importable, but last: a numpy.py there must not replace the installed package
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)


def _command_line() -> object:
    """Run the command that sys.argv names. main() would print an empty line after every StoppedBySignal."""
    write_no_trial_file()
    try:
        with main.make_context("ddpcheck", sys.argv[1:]) as context:
            return main.invoke(context)
    except click.exceptions.Exit as end:  # after --help
        return end.exit_code


def program() -> NoReturn:
    """Run the command line as a program and exit with a status of exit_status.py."""
    status = run(_command_line)
    if status >= ExitStatus.HUNG_UP:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a second signal would change the exit status
            signal.signal(number, signal.SIG_IGN)
    sys.exit(status)
