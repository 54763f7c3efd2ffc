"""`ddpcheck check`: checks adapters and shows the verdicts."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from pathlib import Path

import click

from ..check_levels import LEVELS, Level
from ..checks import select
from ..counted_nouns import counted
from ..running.adapter_lookup import UnusableAdapter, known_adapters
from ..running.check_runner import Settings
from ..running.expected_failures import ExpectedFailures
from ..running.launcher_lookup import installed_launchers
from ..running.plan import Item, installed_checks, plan
from ..running.profiles import profile_named
from ..running.verdict_cache import VerdictCache
from ..verdict import Verdict
from .commands_again import check_again, given_options
from .console import console
from .exit_status import ExitStatus, status_of
from .launcher_options import chosen_launcher
from .number_options import COUNT, SEED
from .options import (
    FILE,
    chosen_checks,
    chosen_deadline,
    chosen_profile,
    chosen_sizes,
    default_sessions,
    failures_folder,
    reasons_by_check,
    usage_errors,
)
from .result_files import write_results
from .run_of_checks import exit_code, run_with_progress, show_all
from .written_files import RequestedFiles

_SETTINGS = frozenset({"profile", "level_name", "seed", "deadline", "launcher_name", "attach", "start", "listen"})
"""Parameters that a run of one of the checks needs, too."""


@click.command("check")
@click.argument("adapters", nargs=-1)
@chosen_sizes("Default: those of the profile.")
@chosen_checks
@chosen_profile("default", "How many Jobs each check draws, and at which world sizes.")
@click.option(
    "--level",
    "level_name",
    default=str(Level.STANDARD),
    show_default=True,
    type=click.Choice(list(LEVELS)),
    help="basic: plain models and the most common laws. standard: all checks. full: all checks with all their Jobs.",
)
@click.option("--seed", type=SEED, help="Draw other Jobs. Default: every run draws the same Jobs.")
@click.option("-x", "--exitfirst", is_flag=True, help="Stop at the first failure.")
@chosen_deadline(10.0)
@click.option(
    "--expect-failure",
    "expected",
    multiple=True,
    metavar="NAME=REASON",
    help="Expect this check to fail; a pass is then a failure. NAME@2,3 limits it to world sizes.",
)
@click.option(
    "--sessions",
    type=COUNT,
    help="Number of world sizes that run at once, for adapters that promise shares_host. Default: CPU count + 1; 1 with -x.",
)
@click.option(
    "-q",
    "--quiet",
    is_flag=True,
    help="Show the first failure of each cause in full, others in a line, and a summary; no table. A progress line "
    "goes to standard error every 30 seconds.",
)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Show every check in a row of its own, and the checks of each reason for a skip.",
)
@click.option("--json", "json_file", type=FILE, help="Write verdicts and environment as JSON.")
@click.option("--junit", "junit_file", type=FILE, help="Write JUnit XML.")
@click.option("--markdown", "markdown_file", type=FILE, help="Write a conformance report.")
@click.option("--badge", "badge_file", type=FILE, help="Write JSON for a shields.io endpoint badge.")
@failures_folder("Folder for the files of failing Jobs.")
@click.option(
    "--launcher",
    "launcher_name",
    type=click.Choice(sorted(installed_launchers())),
    help="How ranks are started. Default: the adapter's launcher.",
)
@click.option(
    "--cache",
    "cache_folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of passed verdicts. A check that passed is skipped while code, versions and settings are unchanged.",
)
@click.option("--attach", metavar="HOST:PORT", help="Address at which to wait for ranks that you start yourself.")
@click.option(
    "--start",
    metavar="LINE",
    help="Command that starts ranks on any hosts, such as 'mpirun -f hosts -n {ranks}'. A rank's command is appended.",
)
@click.option(
    "--listen",
    metavar="HOST",
    help="With --start: an address of this host that all ranks can reach. Default: the host name.",
)
def command(
    adapters: tuple[str, ...],
    world_sizes: tuple[int, ...] | None,
    patterns: tuple[str, ...],
    profile: str,
    level_name: str,
    seed: int | None,
    exitfirst: bool,
    deadline: float,
    expected: tuple[str, ...],
    sessions: int | None,
    quiet: bool,
    verbose: bool,
    json_file: Path | None,
    junit_file: Path | None,
    markdown_file: Path | None,
    badge_file: Path | None,
    failures: Path,
    launcher_name: str | None,
    cache_folder: Path | None,
    attach: str | None,
    start: str | None,
    listen: str | None,
) -> None:
    """Check ADAPTERS against every law that they promise to keep.

    An adapter is a known name (`ddpcheck list adapters`), module:attribute, or path/to/file.py:attribute.
    """
    out = console()
    with usage_errors():
        if not adapters:
            raise ValueError(
                f"name an adapter to check: {', '.join(sorted(known_adapters()))}, or your own as module:attribute"
            )
        if quiet and verbose:
            raise ValueError("--quiet and --verbose exclude each other")
        how, level = profile_named(profile), LEVELS[level_name]
        sizes = world_sizes or how.world_sizes
        launcher = chosen_launcher(out, launcher_name, attach, start, listen, sizes, adapters)
        settings = Settings(
            how, deadline, seed, launcher, sessions or (1 if exitfirst else default_sessions()), level=level
        )
        every = installed_checks()
        expectations = ExpectedFailures(reasons_by_check(expected), every)
        chosen = select(every, patterns)
        items, unusable = _planned(adapters, lambda name: plan(name, sizes, chosen, launcher, level))
        _told_apart(items, len(adapters) - len(unusable))
        _promise_something(items)
        cache = VerdictCache(cache_folder, settings) if cache_folder is not None else None
        known = cache.known(items) if cache is not None else {}
    began = time.monotonic()
    verdicts: list[Verdict] = [expectations.applied(verdict) for verdict in known.values()]
    ended: ExitStatus | None = None
    try:
        run_with_progress(
            out, items, settings, expectations, failures, verdicts, known, exitfirst=exitfirst, quiet=quiet
        )
    except KeyboardInterrupt as interrupt:
        ended = status_of(interrupt)  # the verdicts so far are kept, shown and saved
    steps = () if quiet or ended is not None else _next_steps(verdicts, adapters)
    show_all(out, verdicts, time.monotonic() - began, failures, steps, quiet=quiet, verbose=verbose)
    if known:
        out.print(
            f"{len(known)} of them did not run again: they passed before, and nothing has changed since", soft_wrap=True
        )
    files = RequestedFiles()
    if cache is not None:
        files.write(lambda: _keep(cache, items, verdicts, known))
    references = {item.adapter.name: item.reference for item in items}
    run_again = check_again(references, failures, given_options(click.get_current_context(), _SETTINGS))
    write_results(files, verdicts, settings, json_file, junit_file, markdown_file, badge_file, run_again)
    not_run = f"{len(items) - len(verdicts)} of {len(items)} did not run"
    if exitfirst and len(verdicts) < len(items):
        out.print(f"\nstopped at the first failure: {not_run}")
    if ended is not None:
        out.print(f"\ninterrupted: {not_run}", style="bold red")
        sys.exit(files.status(ended))
    for problem in unusable:
        out.print(f"Error: not checked: {problem}", markup=False, soft_wrap=True)
    sys.exit(files.status(ExitStatus.UNUSABLE if unusable else exit_code(out, verdicts)))


def _next_steps(verdicts: Sequence[Verdict], adapters: Sequence[str]) -> Iterator[str]:
    """After a run without failures: the commands that judge more."""
    if not verdicts or not all(verdict.ok for verdict in verdicts):
        return
    skipped = {verdict.check for verdict in verdicts if verdict.status == "skipped"}
    skipped -= {verdict.check for verdict in verdicts if verdict.status != "skipped"}
    if skipped:
        adapter = adapters[0] if len(adapters) == 1 else "ADAPTER"
        checks = counted(len(skipped), "check was", "checks were")
        yield f"\n{checks} skipped. To find promises that could be made: ddpcheck suggest {adapter}"
    yield "This run checked implementations, not a training script. To check a script: ddpcheck audit train.py"


def _keep(cache: VerdictCache, items: Iterable[Item], verdicts: Iterable[Verdict], known: Container[str]) -> None:
    """Store passed verdicts. UnwritableFile if the folder cannot be written: otherwise CI would silently repeat every
    check.
    """
    places = {(item.adapter.name, item.world_size, item.check.name): item for item in items}
    for verdict in verdicts:
        item = places[verdict.adapter, verdict.world_size, verdict.check]
        if item.name not in known:
            cache.keep(item, verdict)


def _planned(
    adapters: Sequence[str], planning: Callable[[str], list[Item]]
) -> tuple[list[Item], list[UnusableAdapter]]:
    """The items of all adapters, and the problems of unusable adapters. UnusableAdapter if all are unusable."""
    items: list[Item] = []
    problems: list[UnusableAdapter] = []
    for name in adapters:
        try:
            items += planning(name)
        except UnusableAdapter as problem:
            problems.append(problem)
    if not items and problems:
        raise UnusableAdapter("; ".join(map(str, problems)))
    return items, problems


def _told_apart(items: list[Item], adapters: int) -> None:
    """Refuse two adapters with the same name: verdicts, tables and files identify adapters by name."""
    names = dict.fromkeys(item.adapter.name for item in items)
    if len(names) < adapters:
        raise ValueError(f"several adapters have the same name ({', '.join(names)}); check them one by one")


def _promise_something(items: Sequence[Item]) -> None:
    """Refuse an adapter without facets: only check_ranks_start would run, and it would pass."""
    for name in dict.fromkeys(item.adapter.name for item in items if not item.adapter.capabilities.facets):
        raise ValueError(
            f"{name} promises no facet, so there is nothing to check: return its facets from connect(), and promise them in "
            "Capabilities(replica=ReplicaPromises(...)), say; torch_adapter takes wrap=, collectives=, sampler= and others"
        )
