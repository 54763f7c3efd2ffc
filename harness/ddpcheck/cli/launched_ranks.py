"""Ranks of a program in this terminal: their output is shown as it comes, and their exit status is the command's."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping, Sequence

import click
from rich.console import Console

from ..launchers.launcher import Launcher, parent_of
from ..launchers.orphaned_processes import RUN, clock_ticks, kill_leftover_processes
from ..launchers.ports import has_loopback
from .exit_status import status_of

_PROGRAMS_OWN = (0, 1, 2)


def run_ranks(launcher: Launcher, command: Sequence[str], ranks: int, variables: Mapping[str, str]) -> int:
    """Run `command` on so many ranks until all have ended, or one fails.

    The exit status: 0, 1 or 2; after a signal that of the signal.
    """
    reason = launcher.unavailable()
    if reason is not None:
        raise click.UsageError(f"{launcher.name} cannot start ranks here: {reason}")
    if not has_loopback():
        raise click.ClickException("127.0.0.1 cannot be reached, where the ranks would meet; try: ip link set lo up")
    # threads of several ranks on the same cores stand in each other's way
    threads = {} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": "1"}
    sys.stdout.flush()
    run, since = secrets.token_hex(8), clock_ticks()
    added = {**threads, **parent_of(launcher), RUN: run, **variables}
    launched = launcher.start(command, ranks, added, inherit_output=True)
    try:
        status = launched.wait()
        if status not in _PROGRAMS_OWN:
            ended = [launched.status_of(rank) for rank in range(ranks)]
            # those that failed because of it have said so themselves
            died = [text for text in ended if text and "exited" not in text] or [launched.poll() or "the ranks failed"]
            click.echo(f"{', '.join(dict.fromkeys(died))}; the other ranks were ended", err=True)
    except KeyboardInterrupt as interrupt:
        click.echo("interrupted: all ranks were ended", err=True)
        return status_of(interrupt)
    finally:
        launched.kill()
        kill_leftover_processes(since, f"{RUN}={run}")
        Console().show_cursor()  # which the progress bar of a killed rank leaves hidden
    return status if status in _PROGRAMS_OWN else 1
