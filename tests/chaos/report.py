"""The outcomes of the trials: a table of injections by outcome, and the problems."""

from __future__ import annotations

import json
import os
import platform
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos.commands import DEADLINE

SECONDS = DEADLINE + 15
"""A command must end within this many seconds after the injection, beyond its own run time."""
OF_ITSELF = 60
"""Run time on an idle machine; on a busy one it is longer, as long as processes wait for a processor."""
MEASUREMENT = 300
"""The most seconds of one measurement of `bench`, which may begin just before its --minutes are over."""


@dataclass(frozen=True)
class Trial:
    """words: the command. happened: whether the injection found a victim. seconds: from injection to end. problems:
    empty if there are none. commit: of the tree; empty if unknown. forked: whether the command was a fork. processor:
    seconds of processor time of all its processes that ended before it.
    """

    injection: str
    words: tuple[str, ...]
    happened: bool
    status: int | None
    seconds: float
    problems: tuple[str, ...]
    commit: str = ""
    forked: bool = False
    processor: float | None = None


def recorded(path: Path) -> list[Trial]:
    """The trials of a record."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [
        Trial(**{**one, "words": tuple(one["words"]), "problems": tuple(one["problems"])})
        for one in map(json.loads, lines)
    ]


def table(trials: Sequence[Trial]) -> str:
    """A markdown table of injections by outcome."""
    lines = [
        "| injection | trials | happened | status 0 | 1 | 2, 3 | by the signal | late | left behind | false verdict | other |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    each: dict[str, list[Trial]] = defaultdict(list)
    for one in trials:
        each[one.injection].append(one)
    for name, own in each.items():
        statuses = [one.status for one in own]
        problems = [problem for one in own for problem in one.problems]
        late = sum(problem.startswith("still runs") for problem in problems)
        left = sum(" left: " in problem for problem in problems)
        false = sum(problem.startswith("false verdict") for problem in problems)
        counts = (
            len(own),
            sum(one.happened for one in own),
            statuses.count(0),
            statuses.count(1),
            statuses.count(2) + statuses.count(3),
            sum(status is not None and status not in (0, 1, 2, 3) for status in statuses),
            late,
            left,
            false,
            len(problems) - late - left - false,
        )
        lines.append(f"| {name} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)


def _origin(trials: Sequence[Trial]) -> Iterator[str]:
    """The commits of the trials, and their processor time."""
    commits = Counter(one.commit or "unknown" for one in trials)
    yield f"Trials by commit (+: with changes): {', '.join(f'{name} {count}' for name, count in commits.items())}."
    used = [one.processor for one in trials if one.processor is not None]
    if used:
        mean, forks = sum(used) / len(used), sum(one.forked for one in trials)
        yield f"{len(used)} of them took {mean:.1f} s of processor time on average; {forks} commands were forks."


def page(trials: Sequence[Trial]) -> str:
    """The report."""
    cores = len(os.sched_getaffinity(0))
    bad = [one for one in trials if one.problems]
    lines = [
        "# Chaos",
        "",
        "At a random moment, a random command (check, train, bench, gate, audit; 1 to 8 ranks; every launcher) is disturbed.",
        f"It must end with a documented status within {SECONDS} s beyond its undisturbed time. It",
        "must leave no process, temporary file, shared memory or torn file behind. A right adapter must not fail, and the",
        f"next Job must be right. The undisturbed time may be {OF_ITSELF} s, and on a busy machine this time multiplied by load",
        f"per core. On a bad link, `bench` may need {MEASUREMENT} s more, the limit of one measurement.",
        "",
        "The driver of `gate` is not killed: its worktrees stay until the next run. Clocks are set in the rank's `time.time`.",
        "",
        f"`python tests/chaos/run.py --record trials.jsonl --page reports/chaos.md`, with several seeds, on {cores} cores,",
        f"{platform.system()}, Python {platform.python_version()}: {len(trials)} trials, {len(bad)} with problems.",
        f"The longest wait for an end was {max((one.seconds for one in trials), default=0.0):.0f} s.",
        *_origin(trials),
        "",
        table(trials),
    ]
    if bad:
        lines += ["", "## Problems", ""]
        lines += [f"- {one.injection}, `{' '.join(one.words)}`: {one.problems[0].splitlines()[0][:200]}" for one in bad]
    return "\n".join(lines) + "\n"
