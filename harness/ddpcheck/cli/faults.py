"""`ddpcheck faults`: runs faulty adapters and shows that the checks catch them."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import entry_points
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from ..counted_nouns import counted
from ..launchers.fork_servers import ForkServers
from ..running.check_runner import Settings
from ..running.failure_causes import headline_of
from ..running.fault_runs import FaultOutcome, installed_faults, run_fault, select_faults
from ..running.profiles import profile_named
from ..storage.environment import Environment
from ..storage.files import write_atomically
from .console import at_terminal, console, progress_bar
from .exit_status import ExitStatus, status_of
from .number_options import SEED
from .options import FILE, chosen_deadline, chosen_profile, usage_errors
from .verdict_table import symbol
from .written_files import RequestedFiles


@click.command("faults")
@click.argument("patterns", nargs=-1)
@chosen_profile("default")
@click.option("--every", is_flag=True, help="Run all checks on each fault. Default: until one fails.")
@click.option("--seed", type=SEED, help="Draw other Jobs. Default: every run draws the same Jobs.")
@chosen_deadline(3.0)
@click.option(
    "--unusual", is_flag=True, help="Run correct adapters that work in unusual ways instead; no check may fail."
)
@click.option("--json", "json_file", type=FILE, help="Write the outcome of each fault as JSON.")
@click.option(
    "--markdown", "markdown_file", type=FILE, help="Write the kill matrix, a row for each fault, as markdown."
)
def command(
    patterns: tuple[str, ...],
    profile: str,
    every: bool,
    seed: int | None,
    deadline: float,
    unusual: bool,
    json_file: Path | None,
    markdown_file: Path | None,
) -> None:
    """Check deliberately wrong adapters, and show which check catches each, how soon, and with which cause.

    PATTERNS choose faults by family or by part of a name. Default: all. After Ctrl-C the results so far are written.
    """
    out = console()
    with usage_errors():
        settings = Settings(profile_named(profile), deadline, seed)
        found = select_faults(installed_faults("unusual" if unusual else "faults"), patterns)
    as_wished: Callable[[FaultOutcome], bool] = (
        (lambda kill: kill.first is None) if unusual else (lambda kill: kill.caught)
    )
    began = time.monotonic()
    kills: list[FaultOutcome] = []
    ended: ExitStatus | None = None
    with progress_bar(out, disable=not at_terminal(out)) as bar, ForkServers() as fork_servers:
        task = bar.add_task("", total=len(found))
        try:
            for fault in found:
                bar.update(task, description=escape(fault.name))
                kills.append(run_fault(fault, settings, every=every or unusual, fork_servers=fork_servers))
                _show(out, kills[-1], as_wished(kills[-1]), unusual=unusual)
                bar.advance(task)
        except KeyboardInterrupt as interrupt:
            ended = status_of(interrupt)
    out.print(f"\n[bold]{_summary(kills, time.monotonic() - began, unusual=unusual)}[/]", soft_wrap=True)
    record = {"profile": profile, "seed": seed, "deadline": deadline, "environment": asdict(Environment.here())}
    plain = {**record, "kills": [kill.to_plain() for kill in kills]}
    files = RequestedFiles()
    if json_file is not None:
        files.write(lambda: write_atomically(json_file, json.dumps(plain, indent=1) + "\n"))
    if markdown_file is not None:
        (entry,) = entry_points(group="ddpcheck.reports", name="kill_matrix")
        files.write(lambda: write_atomically(markdown_file, entry.load()(plain)))
    if ended is not None:
        out.print(f"interrupted: {len(found) - len(kills)} of {len(found)} were not run")
        sys.exit(files.status(ended))
    sys.exit(files.status(0 if all(map(as_wished, kills)) else 1))


def _show(out: Console, kill: FaultOutcome, well: bool, *, unusual: bool) -> None:
    about = f"{kill.family}, {counted(kill.world_size, 'rank')}" + ("" if unusual else _origin(kill))
    title = f"{symbol('passed' if well else 'failed')} [bold]{escape(kill.name)}[/] ({about})"
    if kill.first is None:
        out.print(f"{title}: {'no check fails' if unusual else 'SURVIVES: no check fails'}", soft_wrap=True)
        return
    out.print(f"{title}: {kill.first.check} after {kill.seconds:.1f} s", soft_wrap=True)
    if kill.first.diagnosis is not None:
        out.print(f"    {escape(headline_of(kill.first))}", style="dim", soft_wrap=True)
    if kill.missed:
        out.print(f"    should also have failed: {', '.join(kill.missed)}", style="bold red", soft_wrap=True)


def _origin(kill: FaultOutcome) -> str:
    return escape(f", seen in {', '.join(kill.seen_in)}") if kill.seen_in else ", invented"


def _summary(kills: Sequence[FaultOutcome], seconds: float, *, unusual: bool) -> str:
    if unusual:
        flagged = sum(kill.first is not None for kill in kills)
        return f"{len(kills)} correct adapters, {flagged} flagged; {seconds:.0f} s"
    caught = [kill.seconds for kill in kills if kill.caught]
    times = (
        f"; seconds to the first failure: median {statistics.median(caught):.1f}, slowest {max(caught):.1f}"
        if caught
        else ""
    )
    seen = sum(bool(kill.seen_in) for kill in kills)
    origins = f" ({seen} seen in real code, {len(kills) - seen} invented)"
    return f"{len(caught)} of {len(kills)} faults caught{origins}{times}; {seconds:.0f} s"
