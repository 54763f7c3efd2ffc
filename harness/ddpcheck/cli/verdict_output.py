"""Verdicts on a terminal or in a log: failures when they are found, reasons and causes at the end; readable without colour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from ..counted_nouns import counted
from ..printable_text import LONGEST_LINE, cut
from ..relative_paths import relative
from ..running.failure_files import replay_command
from ..running.failure_groups import group_failures
from ..storage.environment import visible_cores
from ..storage.failing_jobs import failure_file
from ..verdict import Verdict
from .shortened_stacks import shortened
from .verdict_table import STYLES, WORDS, symbol

_DETAIL_LINES = 24
_NAMED = 4
_SYMPTOMS = 3
"""The number of symptoms that are shown for one cause."""
_REASONS = 8
"""The number of reasons for skips that are listed; later ones are only counted."""
_CAUSES = 6
"""The number of causes that are listed; later ones are only counted."""


def show_failure(
    console: Console,
    verdict: Verdict,
    keep_text: Callable[[Verdict], str],
    file: Path | None = None,
    script: Path | None = None,
) -> None:
    """Show one failure in ten seconds' reading, with the command that repeats it.

    keep_text: keeps the whole text of a failure that is shown in part, and returns a sentence on where.
    """
    console.print(f"{symbol(verdict.status)} [bold]{escape(_title(verdict))}[/]", soft_wrap=True)
    whole = verdict.text()
    lines = _text(verdict).rstrip().splitlines()
    shown = [cut(line, LONGEST_LINE) for line in lines[:_DETAIL_LINES]]
    for line in shown:
        console.print(f"    {escape(line)}", soft_wrap=True)
    if len(lines) > _DETAIL_LINES:
        console.print(f"    ... {len(lines) - _DETAIL_LINES} more lines", style="dim")
    if shown != whole.rstrip().splitlines():
        console.print(f"    {escape(keep_text(verdict))}", style="cyan", soft_wrap=True)
    if file is not None:
        console.print(f"    run again: {escape(replay_command(file))}", style="cyan", soft_wrap=True)
    if script is not None:
        console.print(f"    stand-alone: python {escape(relative(script))}", style="cyan", soft_wrap=True)
    console.print()


def _text(verdict: Verdict) -> str:
    """The verdict's text without the middle of its stacks."""
    if verdict.diagnosis is None:
        return verdict.text()
    return replace(verdict.diagnosis, details=tuple(map(shortened, verdict.diagnosis.details))).text()


def show_briefly(console: Console, verdict: Verdict, text: str) -> None:
    """One line for a failure whose cause was already shown, or after many failures."""
    console.print(f"{symbol(verdict.status)} {escape(f'{_title(verdict)}: {text}')}", soft_wrap=True)


def _title(verdict: Verdict) -> str:
    return f"{verdict.adapter}, {counted(verdict.world_size, 'rank')}: {verdict.check} ({verdict.family})"


def show_reasons(console: Console, verdicts: Iterable[Verdict], *, every: bool = False) -> None:
    """Each reason for an expected failure with its checks, and the reasons of most skips with their numbers of checks.

    every: each reason for a skip, with the names of its checks.
    """
    verdicts = list(verdicts)
    adapters = {verdict.adapter for verdict in verdicts}
    for status, title in (("skipped", "skipped, because"), ("expected_failure", "expected to fail, because")):
        reasons: dict[str, list[Verdict]] = {}
        for verdict in verdicts:
            if verdict.status == status:
                reasons.setdefault(verdict.reason, []).append(verdict)
        if not reasons:
            continue
        console.print(f"\n[bold]{title}[/]")
        names = every or status != "skipped"
        most = sorted(reasons, key=lambda reason: -len(_checks_of(reasons[reason])))
        shown = most if names else most[:_REASONS]
        for reason in shown:
            own = dict.fromkeys(verdict.adapter for verdict in reasons[reason])
            whose = "" if len(own) == len(adapters) else f" ({', '.join(own)})"
            checks = _checks_of(reasons[reason])
            said = _some(list(checks)) if names else counted(len(checks), "check")
            console.print(f"  {escape(reason + whose)}: {said}", style=STYLES[status], soft_wrap=True)
        if left := most[len(shown) :]:
            rest = counted(len({verdict.check for reason in left for verdict in reasons[reason]}), "check")
            count = counted(len(left), "more reason")
            console.print(f"  {count}: {rest}; --verbose shows all", style=STYLES[status], soft_wrap=True)


def _checks_of(verdicts: Iterable[Verdict]) -> dict[str, None]:
    return dict.fromkeys(verdict.check for verdict in verdicts)


def show_not_covered(console: Console, verdicts: Iterable[Verdict]) -> None:
    """Show the cases that passing checks left out, with the reasons and the number of these checks."""
    checks: dict[str, dict[str, None]] = {}
    for verdict in verdicts:
        for part in verdict.not_covered:
            checks.setdefault(part, {})[verdict.check] = None
    if checks:
        console.print("\n[bold]not tried by checks that passed[/]")
    for part, names in sorted(checks.items(), key=lambda item: (-len(item[1]), item[0])):
        console.print(f"  {escape(part)}: {counted(len(names), 'check')}", style="dim", soft_wrap=True)


def show_observations(console: Console, verdicts: Iterable[Verdict]) -> None:
    """Facts that break no promise, each once, with their adapters and world sizes."""
    found: dict[str, dict[str, list[int]]] = {}
    for verdict in verdicts:
        if verdict.observation:
            found.setdefault(verdict.observation, {}).setdefault(verdict.adapter, []).append(verdict.world_size)
    if found:
        console.print("\n[bold]observations, which break no promise[/]")
    for text, where in found.items():
        names = "; ".join(
            f"{name}, {', '.join(map(str, [*sizes[:-1], counted(sizes[-1], 'rank')]))}" for name, sizes in where.items()
        )
        console.print(f"  {escape(f'{names}: {text}')}", style="dim", soft_wrap=True)


def show_causes(console: Console, verdicts: Iterable[Verdict], failures: Path) -> None:
    """Show failures grouped by cause, most fundamental first, and the command that repeats the first."""
    verdicts = list(verdicts)
    found = group_failures(verdicts)
    if not found:
        return
    several = len({verdict.adapter for verdict in verdicts}) > 1
    in_front = ", most fundamental first" if len(found) > 1 else ""
    console.print(f"\n[bold]failures by cause[/]{in_front}", soft_wrap=True)
    for group in found[:_CAUSES]:
        whose = f"{group.first.adapter}: " * several
        console.print(f"  {escape(whose + group.text)}", style=STYLES["failed"], soft_wrap=True)
        *less, most = group.world_sizes
        sizes = "".join(f"{size}, " for size in less) + counted(most, "rank")
        got = group.first.diagnosis.headline if group.first.diagnosis else ""
        got = f"; {got}" if got not in ("", group.text) else ""
        console.print(f"      {_some(list(group.checks), group.first.check)}, at {escape(sizes + got)}", soft_wrap=True)
        if group.symptoms:
            told = "; ".join(dict.fromkeys(symptom.text for symptom in group.symptoms[:_SYMPTOMS]))
            more = len(group.explained) - len(group.checks)
            checks = counted(more, "more check") if more else "the same checks"
            console.print(f"      symptoms in {checks}: {escape(told)}", style="dim", soft_wrap=True)
    if left := found[_CAUSES:]:
        checks = _some(list(dict.fromkeys(name for group in left for name in group.checks)))
        console.print(
            f"  and {len(left)} more causes, which may follow from the causes above: {checks}", soft_wrap=True
        )
    file = failure_file(failures, found[0].first)
    if file is not None and file.exists():
        console.print(f"start with: {escape(replay_command(file))}", style="cyan", soft_wrap=True)


def _some(names: list[str], first: str = "") -> str:
    if len(names) <= _NAMED:
        return ", ".join(names)
    return f"{len(names)} checks" + (f", first {first}" if first else "")


def summary(verdicts: Iterable[Verdict], seconds: float) -> str:
    """Counts, seconds and Jobs in one line."""
    every = list(verdicts)
    counts = Counter[str](verdict.status for verdict in every)
    parts = [f"{counts[status]} {words}" for status, words in WORDS.items() if counts[status]]
    jobs = sum(verdict.jobs for verdict in every)
    return f"{', '.join(parts) or 'nothing ran'}; {counted(jobs, 'Job')} in {seconds:.1f} s"


def oversubscribed(sizes: Iterable[int]) -> str:
    """A note if there are more ranks than cores; else empty."""
    cores = visible_cores()
    more = sorted({size for size in sizes if size > cores})
    if not more:
        return ""
    return (
        f"note: {cores} cores are visible here, fewer than the ranks at world size {', '.join(map(str, more))}: "
        "verdicts are valid, times do not show speed"
    )
