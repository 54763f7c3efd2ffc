"""Disturbs running commands: each must end in time, with a documented status, and leave nothing behind.

python tests/chaos/run.py --minutes 5 --seed 1 --jobs 4 --record tests/chaos/trials.jsonl
python tests/chaos/run.py --minutes 0 --record tests/chaos/trials.jsonl --page reports/chaos.md

Every trial is appended to the record with the commit of the tree, so trials of many runs add up.

On Linux. As root, the campaign has its own shared memory, which can be made too small.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import click

if __package__ in (None, ""):  # run as a file
    sys.path.insert(0, str(Path(__file__).parents[1]))

from result_lines import commit_of_tests

from chaos import forked_driver
from chaos.aftermath import false_verdicts, left_files, left_processes, shared_memory, torn_files
from chaos.commands import drawn_command, prepare
from chaos.forked_driver import Running
from chaos.injections import INJECTIONS, Injection, struck
from chaos.report import MEASUREMENT, OF_ITSELF, SECONDS, Trial, page, recorded, table
from chaos.surroundings import OWN_MEMORY, possible, start_with_own_memory
from chaos.victims import MARK
from ddpcheck import Job, Session
from ddpcheck.job import AllReduce, TensorSpec
from ddpcheck.launchers.fork_servers import ForkServers

FORKED = 0.8
"""The share of commands that are forks of this process. The others start an interpreter, and can be hit while they do."""


COMMIT = commit_of_tests()


def trial(injection: Injection, drawn: random.Random, fork_servers: ForkServers | None = None) -> Trial:
    """Run one random command with this injection."""
    pauses = "SIGSTOP" in injection.name
    killed = bool({-signal.SIGKILL, -signal.SIGSEGV} & injection.statuses)
    words = drawn_command(drawn, injection.kind, pauses=pauses, killed=killed, adapter=injection.adapter)
    mark, used = f"{drawn.getrandbits(64):x}", processor_seconds()
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as made:
        folder, temporary = Path(made, "work"), Path(made, "tmp")
        folder.mkdir()
        temporary.mkdir()
        prepare(folder, words)
        before = shared_memory()
        command = [sys.executable, "-m", "ddpcheck", *words]
        if injection.around is not None:
            command = injection.around.around(command)
        with Path(made, "said").open("w+b") as said:
            variables = {MARK: mark, "TMPDIR": str(temporary), "HOME": str(folder)}
            forked = injection.around is None and injection.limit is None and drawn.random() < FORKED
            running: Running
            if forked:
                running = forked_driver.start(words, folder, variables, said)
            else:
                running = subprocess.Popen(
                    command,
                    cwd=folder,
                    env=os.environ | variables,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                    start_new_session=True,
                    preexec_fn=injection.limit,  # this program has one thread
                )
            victim = struck(injection, drawn, mark, running)
            since = time.monotonic()
            status: int | None = None
            limit = SECONDS + OF_ITSELF * max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))
            if words[0] == "bench" and injection.name.endswith(" link"):
                limit += MEASUREMENT
            with suppress(subprocess.TimeoutExpired, TimeoutError):
                status = running.wait(limit)
            seconds = time.monotonic() - since
            if status is None:
                running.kill()
                running.wait()
            said.seek(0)
            text = said.read().decode(errors="replace")
        problems = [*_ending(injection, words, status, text, limit), *left_processes(mark, running.pid)]
        problems += left_files(
            temporary, before if OWN_MEMORY in os.environ else shared_memory()
        )  # other commands use it, too
        problems += torn_files(folder)
        problems += false_verdicts(folder, may_fail=injection.judged)
    problems += _next_job(fork_servers)
    used = processor_seconds() - used
    return Trial(injection.name, words, bool(victim), status, seconds, tuple(problems), COMMIT, forked, round(used, 2))


def processor_seconds() -> float:
    """Processor time of this process and of its children that have ended."""
    return sum(
        each.ru_utime + each.ru_stime
        for each in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def _ending(injection: Injection, words: Sequence[str], status: int | None, text: str, limit: float) -> Iterable[str]:
    if status is None:
        yield f"still runs {limit:.0f} s later: {text[-500:]}"
    elif status not in injection.statuses:
        yield f"status {status}: {text[-500:]}"
    # audit shows the script's own traceback, and train a rank's
    elif "Traceback (most recent call last)" in text and words[0] in ("check", "bench") and status != 1:
        yield f"a traceback: {text[text.index('Traceback') :][-500:]}"


def _next_job(fork_servers: ForkServers | None) -> Iterable[str]:
    job = Job(2, (AllReduce(TensorSpec((5,)), "sum"),))
    with Session("numpy_sockets", 2, fork_servers=fork_servers) as session:
        trace = session.run(job)
    operation = job.operations[0]
    assert isinstance(operation, AllReduce)
    expected = operation.tensor.on(0) + operation.tensor.on(1)
    if not trace.completed or any((result != expected).any() for result in trace.values(0, "result")):
        yield "the next Job is wrong"


def usable(injection: Injection) -> bool:
    """Whether this injection is possible here."""
    return injection.around is None or possible(injection.around)


def campaign(minutes: float, seed: int, names: Sequence[str] = (), record: Path | None = None) -> list[Trial]:
    """Trials of all injections in turn, until the time is over. record: a file to which each trial is appended as a
    line of JSON.
    """
    drawn = random.Random(seed)
    until = time.monotonic() + 60 * minutes
    trials: list[Trial] = []
    chosen = [each for each in INJECTIONS if usable(each) and (not names or any(name in each.name for name in names))]
    forked_driver.import_commands()
    with ForkServers() as fork_servers:
        while time.monotonic() < until:
            for injection in drawn.sample(chosen, len(chosen)):
                if time.monotonic() > until:
                    break
                one = trial(injection, drawn, fork_servers)
                trials.append(one)
                if record is not None:
                    with record.open("ab", buffering=0) as file:  # one write: other campaigns append, too
                        file.write(f"{json.dumps(asdict(one))}\n".encode())
                mark = "!" if one.problems else " "
                click.echo(f"{mark} {injection.name}: {json.dumps(one.words)} status {one.status}, {one.seconds:.1f} s")
                for problem in one.problems:
                    click.echo(f"    {problem}")
    return trials


def at_once(minutes: float, seed: int, names: Sequence[str], record: Path, jobs: int) -> None:
    """Run so many campaigns at once. Each is a process with shared memory of its own, so none sees another's remains."""
    words = [word for name in names for word in ("--only", name)]
    command = [
        sys.executable,
        str(Path(__file__).resolve()),
        "--minutes",
        str(minutes),
        "--record",
        str(record),
        *words,
    ]
    running = [subprocess.Popen([*command, "--seed", str(seed + job), "--quiet"]) for job in range(jobs)]
    for each in running:
        each.wait()


@click.command()
@click.option("--minutes", type=float, default=5.0, show_default=True, help="0 only writes the page of the record.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--only", multiple=True, help="Run only injections with this text in their names.")
@click.option(
    "--record",
    type=click.Path(path_type=Path),
    help="Append each trial to this file. The page counts all trials in it.",
)
@click.option(
    "--also",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="A record of other runs, whose trials the page counts, too.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of campaigns at once, with seeds one after the other. Needs --record.",
)
@click.option("--quiet", is_flag=True, help="Print no table.")
@click.option("--page", "path", type=click.Path(path_type=Path), help="Write the table to this file.")
def command(
    minutes: float,
    seed: int,
    only: tuple[str, ...],
    record: Path | None,
    also: tuple[Path, ...],
    jobs: int,
    quiet: bool,
    path: Path | None,
) -> None:
    """Run the campaign, and print the table. Exit status 1 if a trial has problems."""
    if jobs > 1:
        if record is None:
            raise click.UsageError("--jobs needs --record, the file to which all campaigns append")
        at_once(minutes, seed, only, record, jobs)
        trials = []
    else:
        start_with_own_memory()
        signal.signal(
            signal.SIGHUP, signal.SIG_DFL
        )  # commands inherit the setting: under nohup they would ignore SIGHUP
        trials = campaign(minutes, seed, only, record)
    if record is not None:
        trials = recorded(record)
    trials += [one for other in also for one in recorded(other)]
    if not quiet:
        click.echo(table(trials))
    if path is not None:
        path.write_text(page(trials), encoding="utf-8")
    sys.exit(1 if any(one.problems for one in trials) else 0)


if __name__ == "__main__":
    command()
