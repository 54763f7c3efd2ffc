"""Searches for false alarms: thousands of drawn Jobs on each implementation that is known to be right.

    python tests/false_alarms/run.py tests/false_alarms/results.jsonl --jobs 10000
    python tests/false_alarms/run.py tests/false_alarms/results.jsonl --jobs 10000 --only ^torch
    python tests/false_alarms/run.py tests/false_alarms/results.jsonl --jobs 10000 --markdown reports/false-alarms.md

Runs every installed adapter, and every correct but unusual one (`ddpcheck faults --unusual`). A run is an adapter at
one world size, with its own random seed. The first run has every check at the effort of `ddpcheck check`; later runs
draw many more Jobs. The adapter with the fewest drawn Jobs is next. Every run is a line of the results, so an
interrupted campaign continues; remove the lines of changed laws. The Job of an alarm is saved for `ddpcheck replay`;
explain each alarm in answers.toml.
"""

from __future__ import annotations

import argparse
import json
import re
import secrets
import sys
import time
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from report import markdown
from result_lines import read_results

from ddpcheck.job import Job
from ddpcheck.launchers.fork_servers import ForkServers
from ddpcheck.running.adapter_lookup import known_adapters, reference_of
from ddpcheck.running.check_runner import run_check
from ddpcheck.running.fault_runs import installed_faults
from ddpcheck.running.plan import installed_checks, plan
from ddpcheck.running.profiles import profile_named
from ddpcheck.session import Session
from ddpcheck.storage.failing_jobs import write_failure
from ddpcheck.trace import Trace
from ddpcheck_properties.drawing import Drawn

LATER_SIZES = (2, 3, 2, 4)
"""World sizes of the runs after the first, in turn."""

AT_ONCE = 5000
"""Drawn Jobs of one run, times ranks: a minute on two cores."""

MOST_EFFORT = 1000
FIRST_ONLY = ("failures", "rendezvous", "wire")
"""Families whose Jobs are fixed, and mostly start ranks again."""

DEADLINE = 60.0
"""Seconds for one Job: a busy machine must not cause an alarm."""


@dataclass(frozen=True)
class Run:
    """The outcome of one run. checks: the number of checks, of so many families. jobs: all Jobs, including fixed ones;
    drawn: the number of different drawn Jobs. alarms: check, status, and message of each.
    """

    adapter: str
    world_size: int
    seed: int
    effort: int
    checks: int
    families: int
    jobs: int
    drawn: int
    seconds: float
    alarms: list[tuple[str, str, str]]


@dataclass(frozen=True)
class Subject:
    """An adapter, with the world sizes of its first run and of later runs."""

    name: str
    reference: str
    first: int
    later: tuple[int, ...]

    def next_run(self, before: Sequence[Run], fork_servers: ForkServers) -> Run:
        if not before:
            return judged(self, self.first, profile_named("default").effort, (), fork_servers)
        world_size = self.later[(len(before) - 1) % len(self.later)]
        drawn_for_one = sum(run.drawn for run in before) / sum(run.effort for run in before)
        effort = min(MOST_EFFORT, round(AT_ONCE / world_size / max(1.0, drawn_for_one)))
        return judged(self, world_size, effort, FIRST_ONLY, fork_servers)


class CountingSession(Session):
    """A session that counts drawn Jobs separately from fixed ones."""

    drawn: set[int]

    def run_many(self, jobs: Iterable[Job]) -> Generator[Trace, None, None]:
        if isinstance(jobs, Drawn):
            self.drawn |= set(map(hash, jobs))
        return super().run_many(jobs)


def subjects(only: str) -> Iterator[Subject]:
    """Every adapter that is known to be right and can run here."""
    known = [(name, name, 2) for name in sorted(known_adapters())]
    known += [(one.adapter.name, reference_of(one.adapter), one.world_size) for one in installed_faults("unusual")]
    for name, reference, size in known:
        sizes = [size, *LATER_SIZES, 1]
        runs = {item.world_size for item in plan(reference, set(sizes), installed_checks()) if not item.skip}
        able = [size for size in sizes if size in runs]
        if able and re.search(only, name):
            yield Subject(name, reference, able[0], tuple(size for size in able[1:] if size > 1) or (able[0],))


def judged(subject: Subject, world_size: int, effort: int, without: Collection[str], fork_servers: ForkServers) -> Run:
    seed = secrets.randbits(32)
    session = CountingSession(
        subject.reference, world_size, deadline=DEADLINE, effort=effort, random_seed=seed, fork_servers=fork_servers
    )
    session.drawn = set()
    began = time.monotonic()
    alarms: list[tuple[str, str, str]] = []
    ran: list[str] = []
    with session:
        for item in plan(subject.reference, (world_size,), installed_checks()):
            if item.skip or item.check.family in without:
                continue
            verdict = run_check(session, item.check)
            if verdict.status != "skipped":
                ran.append(verdict.family)
            if not verdict.ok:
                words = verdict.diagnosis.text() if verdict.diagnosis else verdict.reason
                alarms.append((verdict.check, verdict.status, words[:2000]))
                write_failure(Path("ddpcheck-failures"), subject.reference, verdict)
    seconds = round(time.monotonic() - began, 1)
    counts = (len(ran), len({*ran}), session.jobs_run, len(session.drawn))
    return Run(subject.name, world_size, seed, effort, *counts, seconds, alarms)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--jobs", type=int, default=10_000, help="drawn Jobs for each adapter")
    parser.add_argument("--only", default="", help="only adapters whose name matches this regular expression")
    parser.add_argument("--markdown", type=Path, help="write the report of the results so far, and run nothing")
    options = parser.parse_args()
    if options.markdown:
        names = [one.name for one in subjects(options.only)]
        options.markdown.write_text(markdown(read_results(options.results), names, options.jobs), encoding="utf-8")
        return
    chosen = list(subjects(options.only))
    with ForkServers() as fork_servers:
        while True:
            done = [Run(**line) for line in read_results(options.results)]
            before = {one: [run for run in done if run.adapter == one.name] for one in chosen}
            # adapters with only fixed Jobs need only one run
            drawing = [one for one in chosen if not before[one] or any(run.drawn for run in before[one])]
            fewest = min(drawing, key=lambda one: sum(run.drawn for run in before[one]))
            if sum(run.drawn for run in before[fewest]) >= options.jobs:
                return
            run = fewest.next_run(before[fewest], fork_servers)
            with options.results.open("a") as results:
                results.write(json.dumps(asdict(run)) + "\n")
            print(f"{run.seconds:6.1f} s {run.adapter}: {run.drawn} drawn at {run.world_size} ranks", flush=True)
            for alarm in run.alarms:
                print("ALARM", *alarm, flush=True)


if __name__ == "__main__":
    main()
