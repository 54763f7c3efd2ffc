"""Disturbs running commands: each must end in time, with a documented status, and leave nothing behind.

python tests/chaos/run.py --minutes 5 --seed 1 --page reports/chaos.md

On Linux. As root, the campaign has its own shared memory, which can be made too small.
"""

from __future__ import annotations

import json
import os
import random
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

from chaos.aftermath import false_verdicts, left_files, left_processes, shared_memory, torn_files
from chaos.commands import drawn_command, prepare
from chaos.injections import INJECTIONS, Injection, struck
from chaos.report import OF_ITSELF, SECONDS, Trial, page, recorded, table
from chaos.surroundings import possible
from chaos.victims import MARK
from ddpcheck import Job, Session
from ddpcheck.job import AllReduce, TensorSpec
from ddpcheck.launchers.fork_servers import ForkServers

_OWN_MEMORY = "DDPCHECK_CHAOS_OWN_SHM"


def trial(injection: Injection, drawn: random.Random, fork_servers: ForkServers | None = None) -> Trial:
    """Run one random command with this injection."""
    pauses = "SIGSTOP" in injection.name
    killed = bool({-signal.SIGKILL, -signal.SIGSEGV} & injection.statuses)
    words = drawn_command(drawn, injection.kind, pauses=pauses, killed=killed, adapter=injection.adapter)
    mark = f"{drawn.getrandbits(64):x}"
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
            running = subprocess.Popen(
                command,
                cwd=folder,
                env=os.environ | {MARK: mark, "TMPDIR": str(temporary), "HOME": str(folder)},
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
            with suppress(subprocess.TimeoutExpired):
                status = running.wait(limit)
            seconds = time.monotonic() - since
            if status is None:
                running.kill()
                running.wait()
            said.seek(0)
            text = said.read().decode(errors="replace")
        problems = [*_ending(injection, words, status, text, limit), *left_processes(mark)]
        problems += left_files(
            temporary, before if _OWN_MEMORY in os.environ else shared_memory()
        )  # other commands use it, too
        problems += torn_files(folder)
        problems += false_verdicts(folder, may_fail=injection.judged)
    problems += _next_job(fork_servers)
    return Trial(injection.name, words, bool(victim), status, seconds, tuple(problems))


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
    with ForkServers() as fork_servers:
        while time.monotonic() < until:
            for injection in drawn.sample(chosen, len(chosen)):
                if time.monotonic() > until:
                    break
                one = trial(injection, drawn, fork_servers)
                trials.append(one)
                if record is not None:
                    with record.open("a", encoding="utf-8") as file:
                        file.write(f"{json.dumps(asdict(one))}\n")
                mark = "!" if one.problems else " "
                click.echo(f"{mark} {injection.name}: {json.dumps(one.words)} status {one.status}, {one.seconds:.1f} s")
                for problem in one.problems:
                    click.echo(f"    {problem}")
    return trials


@click.command()
@click.option("--minutes", type=float, default=5.0, show_default=True, help="0 only writes the page of the record.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--only", multiple=True, help="Run only injections with this text in their names.")
@click.option(
    "--record",
    type=click.Path(path_type=Path),
    help="Append each trial to this file. The page counts all trials in it.",
)
@click.option("--page", "path", type=click.Path(path_type=Path), help="Write the table to this file.")
def command(minutes: float, seed: int, only: tuple[str, ...], record: Path | None, path: Path | None) -> None:
    """Run the campaign, and print the table. Exit status 1 if a trial has problems."""
    _with_own_memory()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # commands inherit the setting: under nohup they would ignore SIGHUP
    trials = campaign(minutes, seed, only, record)
    if record is not None:
        trials = recorded(record)
    click.echo(table(trials))
    if path is not None:
        path.write_text(page(trials), encoding="utf-8")
    sys.exit(1 if any(one.problems for one in trials) else 0)


def _with_own_memory() -> None:
    """Continue in a mount namespace with its own shared memory, where that is possible."""
    if not possible() or _OWN_MEMORY in os.environ:
        return
    words = 'mount -t tmpfs none /dev/shm && exec "$@"'
    os.environ[_OWN_MEMORY] = "1"
    os.execvp("unshare", ["unshare", "-m", "sh", "-c", words, "sh", sys.executable, *sys.argv])


if __name__ == "__main__":
    command()
