"""Ranks of a program in this terminal: shows their output and returns their exit status."""

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
    """Run `command` on `ranks` ranks until all have ended or one has failed.

    Returns 0, 1 or 2, or after a signal the status of that signal.
    """
    reason = launcher.unavailable()
    if reason is not None:
        raise click.UsageError(f"{launcher.name} cannot start ranks here: {reason}")
    if not has_loopback():
        raise click.ClickException("127.0.0.1 cannot be reached, so the ranks cannot meet; try: ip link set lo up")
    # without this, the math threads of several ranks compete for the same cores
    threads = {} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": "1"}
    sys.stdout.flush()
    run, since = secrets.token_hex(8), clock_ticks()
    added = {**threads, **parent_of(launcher), RUN: run, **variables}
    launched = launcher.start(command, ranks, added, inherit_output=True)
    try:
        status = launched.wait()
        if status not in _PROGRAMS_OWN:
            ended = [launched.status_of(rank) for rank in range(ranks)]
            # the ranks that failed because of this one have printed their own errors
            died = [text for text in ended if text and "exited" not in text] or [launched.poll() or "the ranks failed"]
            click.echo(f"{', '.join(dict.fromkeys(died))}; the other ranks were ended", err=True)
    except KeyboardInterrupt as interrupt:
        click.echo("interrupted: all ranks were ended", err=True)
        return status_of(interrupt)
    finally:
        launched.kill()
        kill_leftover_processes(since, f"{RUN}={run}")
        Console().show_cursor()  # a killed rank's progress bar leaves the cursor hidden
    return status if status in _PROGRAMS_OWN else 1
