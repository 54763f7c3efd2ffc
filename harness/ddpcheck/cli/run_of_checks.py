"""A run of checks in the terminal: progress, failures when they are found, the table and summary at the end, the exit status."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from rich.console import Console

from ..running.check_runner import Settings, run_items
from ..running.expected_failures import ExpectedFailures
from ..running.failure_files import FailureFiles
from ..running.plan import RANKS_START, Item
from ..verdict import Verdict
from .progress import Display
from .shown_failures import ShownFailures
from .verdict_output import (
    oversubscribed,
    show_causes,
    show_not_covered,
    show_observations,
    show_reasons,
    summary,
)
from .verdict_table import show_table

_REASONS = 3
"""Reasons that are listed if nothing was checked."""


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
    shown = ShownFailures(out, files, quiet=quiet)
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
                files.note_passed(references[verdict.adapter], verdict)
                continue
            shown.show(verdict, references[verdict.adapter], settings.launcher)
            if exitfirst:
                break
    shown.show_numbers_of_omitted()
    if files.outdated:
        out.print(f"\n{_of_earlier_runs(files)}", style="dim", markup=False, soft_wrap=True)
    if files.problem:
        out.print(f"\nfailing Jobs are not kept: {files.problem}; name another folder with --failures", soft_wrap=True)


def _of_earlier_runs(files: FailureFiles) -> str:
    first, *more = files.outdated
    if not more:
        return f"1 file in {files.folder} is of an earlier failure, and its check passed in this run: {first.name}"
    return (
        f"{len(more) + 1} files in {files.folder} are of earlier failures, and their checks passed in this run; "
        f"first {first.name}"
    )


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


def exit_code(out: Console, verdicts: list[Verdict]) -> int:
    """The exit status: 0; 1 on any failure; 2 if no check ran on one of the adapters."""
    if any(not verdict.ok for verdict in verdicts):
        return 1
    ran = {verdict.adapter for verdict in verdicts if verdict.jobs}
    # check_ranks_start runs no Job; of an adapter for which it is all that was chosen, it is enough
    more = {verdict.adapter for verdict in verdicts if verdict.check != RANKS_START.name or verdict.status != "passed"}
    idle: dict[str, dict[str, None]] = {}
    for verdict in verdicts:
        if verdict.adapter in more - ran:
            idle.setdefault(verdict.adapter, {})[verdict.reason] = None
    for name, reasons in idle.items():
        told = [reason for reason in reasons if reason]
        listed = "; ".join(told[:_REASONS]) + f"; and {len(told) - _REASONS} more" * (len(told) > _REASONS)
        out.print(
            f"Error: nothing was checked of {name}: {listed or 'no check applies'}; see ddpcheck doctor", soft_wrap=True
        )
    return 2 if idle else 0
