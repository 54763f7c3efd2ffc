"""reports/false-alarms.md: the runs of each adapter, and each alarm with its explanation.

Explanations are in answers.toml, by adapter and check: a fault of the law or of the adapter, repaired since, or an
effect of the machine. An alarm without explanation is open.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ANSWERS = Path(__file__).with_name("answers.toml")
HEAD = """\
# False alarms

A false alarm is a check that fails a correct implementation. Every adapter that comes with ddpcheck, and every correct but
unusual one, runs with random seeds. The first run of each has every check at the effort of `ddpcheck check`. Later runs
draw many more Jobs, for all families except those with fixed Jobs (failures, rendezvous, wire).

    python tests/false_alarms/run.py tests/false_alarms/results.jsonl --jobs {aim}
    python tests/false_alarms/run.py tests/false_alarms/results.jsonl --jobs {aim} --markdown reports/false-alarms.md

Some alarms show only on fresh ranks. `python tests/false_alarms/alone.py numpy_sockets torch_ddp` therefore runs every check by
itself, on fresh ranks.

{drawn:,} Jobs were drawn in {runs} runs, each with another seed; with the fixed Jobs, {jobs:,} ran.
The aim is {aim:,} drawn Jobs for each adapter: {reached} of {adapters} have reached it; {fixed} others have fixed Jobs only.
Alarms: {alarms}.

| adapter | drawn Jobs | all Jobs | seeds | drawn at ranks | checks | families | alarms |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""


def markdown(runs: Sequence[dict[str, Any]], adapters: Sequence[str], aim: int) -> str:
    """runs: lines of run.py's file; aim: drawn Jobs for each adapter. ValueError if answers.toml explains an alarm that
    never occurred.
    """
    entries = tomllib.loads(ANSWERS.read_text(encoding="utf-8"))["alarm"]
    answers = {(entry["adapter"], entry["check"]): entry["answer"] for entry in entries}
    alarms = Counter((run["adapter"], alarm[0]) for run in runs for alarm in run["alarms"])
    if stray := {*answers} - {*alarms}:
        raise ValueError(f"answers.toml has answers to alarms that are not in the results: {sorted(stray)}")
    by_adapter = {adapter: [run for run in runs if run["adapter"] == adapter] for adapter in adapters}
    head = HEAD.format(
        aim=aim,
        drawn=_sum(runs, "drawn"),
        jobs=_sum(runs, "jobs"),
        runs=len(runs),
        adapters=len(adapters),
        reached=sum(_sum(its, "drawn") >= aim for its in by_adapter.values()),
        fixed=sum(bool(its) and not _sum(its, "drawn") for its in by_adapter.values()),
        alarms=alarms.total() or "none",
    )
    return head + "\n".join([*(_row(*its) for its in by_adapter.items()), *_answered(alarms, answers), ""])


def _row(adapter: str, runs: Sequence[dict[str, Any]]) -> str:
    at_ranks: Counter[int] = Counter()
    for run in runs:
        at_ranks[run["world_size"]] += run["drawn"]
    cells = [
        adapter,
        f"{_sum(runs, 'drawn'):,}",
        f"{_sum(runs, 'jobs'):,}",
        len(runs),
        ", ".join(f"{ranks}: {drawn:,}" for ranks, drawn in sorted(at_ranks.items())),
        max((run["checks"] for run in runs), default=0),
        max((run["families"] for run in runs), default=0),
        sum(len(run["alarms"]) for run in runs),
    ]
    return f"| {' | '.join(map(str, cells))} |"


def _answered(alarms: Mapping[tuple[str, str], int], answers: Mapping[tuple[str, str], str]) -> Iterator[str]:
    if alarms:
        yield from ["", "## Alarms", "", "| adapter | check | times | what came of it |", "| --- | --- | --- | --- |"]
    for (adapter, check), times in alarms.items():
        yield f"| {adapter} | `{check}` | {times} | {answers.get((adapter, check), 'open')} |"


def _sum(runs: Sequence[dict[str, Any]], what: str) -> int:
    return sum(run[what] for run in runs)
