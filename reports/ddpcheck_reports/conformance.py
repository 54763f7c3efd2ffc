"""The conformance report: the verdicts of `ddpcheck check --json` as a page of markdown.

python -m ddpcheck_reports.conformance results.json > conformance.md
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ddpcheck.printable_text import fenced, in_markdown
from ddpcheck.relative_paths import with_relative_paths
from ddpcheck.running.failure_groups import group_failures
from ddpcheck.running.group_symptoms import FailureGroup
from ddpcheck.storage.markdown_table import markdown_table
from ddpcheck.storage.results import Results
from ddpcheck.verdict import SYMBOLS, Status, Verdict

_MEANING: dict[Status, str] = {
    "passed": "passed",
    "failed": "failed",
    "hung": "a rank did not return",
    "unknown": "the check could not judge",
    "expected_failure": "failed, as declared",
    "skipped": "does not apply, or was not promised",
}

_FEW = 8
"""More checks than these that share one reason are folded."""


def _no_command(verdict: Verdict) -> str:
    return ""


def markdown(results: Results, run_again: Callable[[Verdict], str] = _no_command) -> str:
    """The whole page. run_again: the command that runs a failure again; empty if it is not known."""
    verdicts = results.verdicts
    adapters = list(dict.fromkeys(verdict.adapter for verdict in verdicts))
    parts = ["# Conformance", _summary(adapters, verdicts), *_causes(verdicts)]
    parts += [*_failures(verdicts, run_again), _legend(verdicts)]
    judged = {verdict.check for verdict in verdicts if verdict.status != "skipped"}
    shown = [verdict for verdict in verdicts if verdict.check in judged]
    for family in dict.fromkeys(verdict.family for verdict in shown):
        parts += [f"## {family}", _family_table(adapters, [verdict for verdict in shown if verdict.family == family])]
    parts += _observations(verdicts)
    parts += _reasons(verdicts)
    parts += ["## How this was run", _environment(results)]
    return with_relative_paths("\n\n".join(parts)) + "\n"


def _summary(adapters: Sequence[str], verdicts: Sequence[Verdict]) -> str:
    rows = []
    for adapter in adapters:
        own = [verdict for verdict in verdicts if verdict.adapter == adapter]
        counts = Counter(verdict.status for verdict in own)
        sizes = ", ".join(str(size) for size in sorted({verdict.world_size for verdict in own}))
        rows.append(
            [
                in_markdown(adapter),
                sizes,
                *(str(counts[status]) for status in _MEANING),
                str(sum(verdict.jobs for verdict in own)),
            ]
        )
    return markdown_table(
        ["implementation", "world sizes", *(f"{SYMBOLS[status]} {status}" for status in _MEANING), "Jobs"], rows
    )


def _legend(verdicts: Iterable[Verdict]) -> str:
    used = {verdict.status for verdict in verdicts}
    marks = [f"{SYMBOLS[status]} {text}" for status, text in _MEANING.items() if status in used]
    return (
        f"In the tables below each symbol is one world size, in ascending order: {'; '.join(marks)}. They leave out checks "
        "that were skipped everywhere."
    )


def _family_table(adapters: Sequence[str], verdicts: Sequence[Verdict]) -> str:
    rows = []
    for check in dict.fromkeys(verdict.check for verdict in verdicts):
        cells = []
        for adapter in adapters:
            own = [verdict for verdict in verdicts if (verdict.adapter, verdict.check) == (adapter, check)]
            cells.append(" ".join(SYMBOLS[verdict.status] for verdict in sorted(own, key=lambda v: v.world_size)))
        rows.append([f"`{check}`", *cells])
    return markdown_table(["check", *map(in_markdown, adapters)], rows)


def _causes(verdicts: Iterable[Verdict]) -> list[str]:
    """The fewest causes that explain all failures, the most fundamental first, with the symptoms of each."""
    rows = [
        [in_markdown(group.first.adapter), in_markdown(group.text), _named(group.checks), _symptoms(group)]
        for group in group_failures(verdicts)
    ]
    return (
        ["## Failures by cause", markdown_table(["implementation", "cause", "checks", "symptoms"], rows)]
        if rows
        else []
    )


def _symptoms(group: FailureGroup) -> str:
    return "<br>".join(f"{in_markdown(each.text)} {_named(each.checks)}" for each in group.symptoms)


def _named(checks: Iterable[str]) -> str:
    return ", ".join(f"`{check}`" for check in checks)


def _failures(verdicts: Iterable[Verdict], run_again: Callable[[Verdict], str]) -> list[str]:
    found = []
    for verdict in verdicts:
        if verdict.ok:
            continue
        text = verdict.diagnosis.text() if verdict.diagnosis else verdict.reason
        found += [
            f"**{in_markdown(verdict.adapter)}, world size {verdict.world_size}: `{verdict.check}`**",
            fenced(text),
        ]
        if command := run_again(verdict):
            found += ["Run again:", fenced(command, "sh")]
    return ["## Failures", *found] if found else []


def _observations(verdicts: Iterable[Verdict]) -> list[str]:
    rows = [
        [in_markdown(verdict.adapter), str(verdict.world_size), f"`{verdict.check}`", in_markdown(verdict.observation)]
        for verdict in verdicts
        if verdict.observation
    ]
    columns = ["implementation", "world size", "check", "observed"]
    return ["## Observed, without a verdict", markdown_table(columns, rows)] if rows else []


def _reasons(verdicts: Iterable[Verdict]) -> list[str]:
    reasons: dict[tuple[str, str], dict[str, None]] = {}
    for verdict in verdicts:
        if verdict.status in ("skipped", "expected_failure"):
            reasons.setdefault((verdict.adapter, verdict.reason), {})[verdict.check] = None
    rows = [
        [in_markdown(adapter), in_markdown(reason), _folded(list(checks))]
        for (adapter, reason), checks in reasons.items()
    ]
    return (
        ["## Not judged, or failed as declared", markdown_table(["implementation", "because", "checks"], rows)]
        if rows
        else []
    )


def _folded(checks: Sequence[str]) -> str:
    """Their names; many of them behind their number, which unfolds."""
    names = _named(checks)
    return names if len(checks) <= _FEW else f"<details><summary>{len(checks)} checks</summary>{names}</details>"


def _environment(results: Results) -> str:
    here = results.environment
    rows = [
        ["Python", here.python],
        ["platform", f"{here.platform}, {here.processor}, {here.cores} cores visible"],
        ["packages", ", ".join(f"{name} {version}" for name, version in here.packages.items())],
        *([name, str(value)] for name, value in results.settings.items() if value is not None),
    ]
    return markdown_table(["what", "value"], rows)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m ddpcheck_reports.conformance RESULTS.json")
    print(markdown(Results.load(Path(sys.argv[1]))), end="")
