"""`ddpcheck check`: checks adapters and shows the verdicts."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from ..check_levels import LEVELS, Level
from ..checks import select
from ..launchers.launcher import Launcher
from ..running.adapter_lookup import UnusableAdapter, known_adapters
from ..running.check_runner import Settings, run_items
from ..running.expected_failures import ExpectedFailures
from ..running.failure_files import FailureFiles
from ..running.failure_groups import group_failures
from ..running.launcher_lookup import installed_launchers, launcher_named
from ..running.plan import Item, installed_checks, plan
from ..running.profiles import PROFILES, profile_named
from ..running.verdict_cache import VerdictCache
from ..storage.badge import save_badge
from ..storage.files import write_atomically
from ..storage.results import Results, save_junit
from ..verdict import Verdict
from .exit_status import ExitStatus, status_of
from .failures import Failures
from .number_options import COUNT, SECONDS, SEED
from .number_options import world_sizes as sizes_option
from .options import chosen_checks, console, default_sessions, failures_folder, reasons_by_check, usage_errors
from .progress import Display
from .verdict_output import (
    oversubscribed,
    show_causes,
    show_not_covered,
    show_observations,
    show_reasons,
    summary,
)
from .verdict_table import show_table
from .written_files import RequestedFiles

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("check")
@click.argument("adapters", nargs=-1)
@click.option(
    "-w",
    "--world-size",
    "world_sizes",
    callback=sizes_option,
    help="World sizes, such as 1,2,4 or 1-4. Default: those of the profile.",
)
@chosen_checks
@click.option(
    "--profile",
    default="default",
    show_default=True,
    type=click.Choice(list(PROFILES)),
    help="How many Jobs each check draws, and at which world sizes.",
)
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
@click.option(
    "--deadline",
    type=SECONDS,
    default=10.0,
    show_default=True,
    help="Seconds until an operation counts as hung.",
)
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
    help="Show the first failure of each cause in full, others in a line, and a summary; no table.",
)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Show every check in a row of its own, and the checks of each reason for a skip.",
)
@click.option("--json", "json_file", type=_FILE, help="Write verdicts and environment as JSON.")
@click.option("--junit", "junit_file", type=_FILE, help="Write JUnit XML.")
@click.option("--markdown", "markdown_file", type=_FILE, help="Write a conformance report.")
@click.option("--badge", "badge_file", type=_FILE, help="Write JSON for a shields.io endpoint badge.")
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
        _one_of_a_kind(launcher_name, attach, start, listen)
        launcher = (
            _by_line(start, listen) if start is not None else _launcher(out, launcher_name, attach, sizes, adapters)
        )
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
    _write_results(
        files, Results(tuple(verdicts), _described(settings)), json_file, junit_file, markdown_file, badge_file
    )
    not_run = f"{len(items) - len(verdicts)} of {len(items)} did not run"
    if exitfirst and len(verdicts) < len(items):
        out.print(f"\nstopped at the first failure: {not_run}")
    if ended is not None:
        out.print(f"\ninterrupted: {not_run}", style="bold red")
        sys.exit(files.status(ended))
    for problem in unusable:
        out.print(f"Error: not checked: {problem}", markup=False, soft_wrap=True)
    sys.exit(files.status(ExitStatus.UNUSABLE if unusable else exit_code(out, verdicts)))


def run_with_progress(
    out: Console,
    items: Iterable[Item],
    settings: Settings,
    expectations: ExpectedFailures,
    failures: Path,
    verdicts: list[Verdict],
    known: Container[str] = (),
    *,
    exitfirst: bool = False,
    quiet: bool = False,
) -> None:
    """Run the items that are not `known`; show progress, and each failure when it is found.

    Verdicts are appended when they are found. At the end they are sorted into the order of the items.
    """
    every = list(items)
    unknown = [item for item in every if item.name not in known]
    files = FailureFiles(failures)
    told = Failures(out, files, quiet=quiet)
    references = {item.adapter.name: item.reference for item in every}
    with (
        _in_order(verdicts, every),
        Display(out, unknown, quiet=quiet) as display,
        closing(run_items(unknown, settings, expectations, display.begin)) as running,
    ):
        for verdict in running:
            display.add(verdict)
            verdicts.append(verdict)
            if verdict.ok:
                continue
            told.show(verdict, references[verdict.adapter], settings.launcher)
            if exitfirst:
                break
    told.show_number_of_following()
    if files.problem:
        out.print(f"\nfailing Jobs are not kept: {files.problem}; name another folder with --failures", soft_wrap=True)


def _described(settings: Settings) -> dict[str, Any]:
    """The settings of a run, as result files hold them."""
    return {
        "profile": settings.profile.name,
        "effort": settings.profile.effort,
        "level": str(settings.level),
        "seed": settings.random_seed,
        "deadline": settings.deadline,
        "launcher": settings.launcher.name if settings.launcher else "each adapter's own",
    }


def _write_results(
    files: RequestedFiles,
    results: Results,
    json_file: Path | None,
    junit_file: Path | None,
    markdown_file: Path | None,
    badge_file: Path | None,
) -> None:
    """Write the verdicts in each form for which a file is named."""
    if json_file is not None:
        causes = [group.to_plain() for group in group_failures(results.verdicts)]
        files.write(lambda: results.save(json_file, causes=causes))
    if junit_file is not None:
        files.write(lambda: save_junit(results.verdicts, junit_file))
    if markdown_file is not None:
        files.write(lambda: write_atomically(markdown_file, _conformance(results)))
    if badge_file is not None:
        files.write(lambda: save_badge(results.verdicts, badge_file))


@contextmanager
def _in_order(verdicts: list[Verdict], items: Sequence[Item]) -> Iterator[None]:
    """Sort the verdicts into the order of the items."""
    places = {(item.adapter.name, item.world_size, item.check.name): place for place, item in enumerate(items)}
    try:
        yield
    finally:
        verdicts.sort(key=lambda verdict: places[verdict.adapter, verdict.world_size, verdict.check])


def show_all(
    out: Console,
    verdicts: list[Verdict],
    seconds: float,
    failures: Path,
    next_steps: Iterable[str] = (),
    *,
    quiet: bool = False,
    verbose: bool = False,
) -> None:
    """Show the table, then skips, then causes, next steps and the summary: most important last. quiet: only failures and
    the summary. verbose: a row for every check.
    """
    if not quiet:
        out.print()
        show_table(out, verdicts, every=verbose)
        show_reasons(out, verdicts, every=verbose)
        show_not_covered(out, verdicts)
        show_observations(out, verdicts)
    show_causes(out, verdicts, failures)
    if quiet:
        out.print(summary(verdicts, seconds), soft_wrap=True)
        return
    note = oversubscribed(verdict.world_size for verdict in verdicts if verdict.jobs)
    if note:
        out.print(f"\n{note}", style="dim", soft_wrap=True)
    for step in next_steps:
        out.print(step, style="dim", markup=False, soft_wrap=True)
    out.print(f"\n[bold]{summary(verdicts, seconds)}[/]", soft_wrap=True)


def _next_steps(verdicts: Sequence[Verdict], adapters: Sequence[str]) -> Iterator[str]:
    """After a run without failures: the commands that judge more."""
    if not verdicts or not all(verdict.ok for verdict in verdicts):
        return
    skipped = {verdict.check for verdict in verdicts if verdict.status == "skipped"}
    skipped -= {verdict.check for verdict in verdicts if verdict.status != "skipped"}
    if skipped:
        adapter = adapters[0] if len(adapters) == 1 else "ADAPTER"
        checks = "1 check was" if len(skipped) == 1 else f"{len(skipped)} checks were"
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


def exit_code(out: Console, verdicts: list[Verdict]) -> int:
    """The exit status: 0; 1 on any failure; 2 if no check ran on one of the adapters."""
    if any(not verdict.ok for verdict in verdicts):
        return 1
    ran = {verdict.adapter for verdict in verdicts if verdict.jobs}
    idle = {verdict.adapter: verdict.reason for verdict in reversed(verdicts) if verdict.adapter not in ran}
    for name, reason in idle.items():
        out.print(
            f"Error: nothing was checked of {name}: {reason or 'no check applies'}; see ddpcheck doctor", soft_wrap=True
        )
    return 2 if idle else 0


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


def _one_of_a_kind(name: str | None, attach: str | None, start: str | None, listen: str | None) -> None:
    given = [option for option, value in (("--launcher", name), ("--attach", attach), ("--start", start)) if value]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} exclude each other: each of them sets how the ranks are started")
    if listen and not start:
        raise ValueError("--listen is only for --start, whose ranks connect to this address")


def _by_line(line: str, host: str | None) -> Launcher:
    """--start: ranks are started by a line of the user's."""
    from ..launchers.command_launcher import CommandLauncher

    made = CommandLauncher(line, host or socket.gethostname())
    reason = made.unavailable()
    if reason is not None:
        raise ValueError(reason)
    return made


def _launcher(
    out: Console, name: str | None, attach: str | None, sizes: tuple[int, ...], adapters: tuple[str, ...]
) -> Launcher | None:
    """--launcher or --attach; None for each adapter's own."""
    if attach is None:
        return launcher_named(name) if name else None
    if len(sizes) != 1 or len(adapters) != 1:
        raise ValueError("--attach needs one adapter and one --world-size, the number of ranks that you start")
    host, separator, port = attach.rpartition(":")
    if not separator or not host or not port.isdigit():
        raise ValueError(
            f"--attach {attach!r} should be HOST:PORT, with an address of this host that the ranks can reach"
        )
    from ..launchers.attached import Attached

    return Attached(host, int(port), announce=lambda text: out.print(text, markup=False, soft_wrap=True))


def _conformance(results: Results) -> str:
    from importlib.metadata import entry_points

    found = entry_points(group="ddpcheck.reports", name="conformance")
    if not found:
        raise click.ClickException("the report is not installed; install ddpcheck again")
    return str(next(iter(found)).load()(results))
