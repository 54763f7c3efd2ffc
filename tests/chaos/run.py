"""Commands to which something happens while they run: each ends in time, with a documented status, and leaves nothing behind.

python tests/chaos/run.py --minutes 5 --seed 1 --page reports/chaos.md

On Linux. As root, shared memory is that of the campaign alone, and can be too small.
"""

from __future__ import annotations

import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click

if __package__ in (None, ""):  # run as a file
    sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos.aftermath import false_verdicts, left_files, left_processes, shared_memory, torn_files
from chaos.commands import DEADLINE, drawn_command, prepare
from chaos.injections import INJECTIONS, Injection, struck
from chaos.victims import MARK
from ddpcheck import Job, Session
from ddpcheck.job import AllReduce, TensorSpec
from ddpcheck.launchers.fork_servers import Templates

SECONDS = DEADLINE + 15
"""A command ends within so many after the injection, besides the time that it takes of itself."""
_OF_ITSELF = 60
"""On a machine that has nothing else to do; on a busy one as much longer as processes wait for a processor."""
_OWN_MEMORY = "DDPCHECK_CHAOS_OWN_SHM"


@dataclass(frozen=True)
class Trial:
    """words: the command. happened: whether the injection found a victim. seconds: from it to the end. problems: empty if all is
    well.
    """

    injection: Injection
    words: tuple[str, ...]
    happened: bool
    status: int | None
    seconds: float
    problems: tuple[str, ...]


def trial(injection: Injection, drawn: random.Random, templates: Templates | None = None) -> Trial:
    """One drawn command, to which this happens."""
    words = drawn_command(drawn, injection.kind, pauses="SIGSTOP" in injection.name)
    mark = f"{drawn.getrandbits(64):x}"
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as made:
        folder, temporary = Path(made, "work"), Path(made, "tmp")
        folder.mkdir()
        temporary.mkdir()
        prepare(folder)
        before = shared_memory()
        command = [sys.executable, "-m", "ddpcheck", *words]
        if injection.full_shared_memory:
            small = 'mount -t tmpfs -o size=64k none /dev/shm && exec "$@"'
            command = ["unshare", "-m", "sh", "-c", small, "sh", *command]
        with Path(made, "said").open("w+b") as said:
            running = subprocess.Popen(
                command,
                cwd=folder,
                env=os.environ | {MARK: mark, "TMPDIR": str(temporary)},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
                preexec_fn=injection.limit,  # this program has one thread
            )
            victim = struck(injection, drawn, mark, running)
            since = time.monotonic()
            status: int | None = None
            limit = SECONDS + _OF_ITSELF * max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))
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
        )  # or others use it, too
        problems += torn_files(folder)
        problems += false_verdicts(folder, may_fail=injection.judged)
    problems += _next_job(templates)
    return Trial(injection, words, bool(victim), status, seconds, tuple(problems))


def _ending(injection: Injection, words: Sequence[str], status: int | None, text: str, limit: float) -> Iterable[str]:
    if status is None:
        yield f"still runs {limit:.0f} s later: {text[-500:]}"
    elif status not in injection.statuses:
        yield f"status {status}: {text[-500:]}"
    # audit shows the script's own traceback, and train that of a rank
    elif "Traceback (most recent call last)" in text and words[0] in ("check", "bench") and status != 1:
        yield f"a traceback: {text[text.index('Traceback') :][-500:]}"


def _next_job(templates: Templates | None) -> Iterable[str]:
    job = Job(2, (AllReduce(TensorSpec((5,)), "sum"),))
    with Session("numpy_sockets", 2, templates=templates) as session:
        trace = session.run(job)
    operation = job.operations[0]
    assert isinstance(operation, AllReduce)
    expected = operation.tensor.on(0) + operation.tensor.on(1)
    if not trace.completed or any((result != expected).any() for result in trace.values(0, "result")):
        yield "the next Job is wrong"


def usable(injection: Injection) -> bool:
    """Whether this can happen here."""
    return not injection.full_shared_memory or (os.geteuid() == 0 and shutil.which("unshare") is not None)


def table(trials: Sequence[Trial]) -> str:
    """Injection by outcome, as markdown."""
    lines = [
        "| injection | trials | happened | status 0 | 1 | 2, 3 | by the signal | late | left behind | false verdict | other |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    each: dict[str, list[Trial]] = defaultdict(list)
    for one in trials:
        each[one.injection.name].append(one)
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


def page(trials: Sequence[Trial], minutes: float, seed: int) -> str:
    """The report."""
    cores = len(os.sched_getaffinity(0))
    bad = [one for one in trials if one.problems]
    lines = [
        "# Chaos",
        "",
        "Something happens to a drawn command (check, train, bench, audit; 1 to 4 ranks; every launcher) at a drawn moment. The",
        f"command must end with a documented status within {SECONDS} s, besides the time that it takes of itself. It must leave",
        "no process, temporary file, shared memory or torn file behind. A right adapter must not fail by it, and the next Job",
        f"must be right. For a command's own time {_OF_ITSELF} s are allowed, on a busy machine as often as the load exceeds the"
        " cores.",
        "",
        f"`python tests/chaos/run.py --minutes {minutes:g} --seed {seed} --page reports/chaos.md`, on {cores} cores, "
        f"{platform.system()}, Python {platform.python_version()}, load {os.getloadavg()[0]:.0f}: "
        f"{len(trials)} trials, {len(bad)} with problems.",
        f"The longest wait for an end was {max((one.seconds for one in trials), default=0.0):.0f} s.",
        "",
        table(trials),
    ]
    if bad:
        lines += ["", "## Problems", ""]
        lines += [
            f"- {one.injection.name}, `{' '.join(one.words)}`: {one.problems[0].splitlines()[0][:200]}" for one in bad
        ]
    return "\n".join(lines) + "\n"


def campaign(minutes: float, seed: int, names: Sequence[str] = ()) -> list[Trial]:
    """Trials of all injections in turn, until the time is over."""
    drawn = random.Random(seed)
    until = time.monotonic() + 60 * minutes
    trials: list[Trial] = []
    chosen = [each for each in INJECTIONS if usable(each) and (not names or any(name in each.name for name in names))]
    with Templates() as templates:
        while time.monotonic() < until:
            for injection in drawn.sample(chosen, len(chosen)):
                if time.monotonic() > until:
                    break
                one = trial(injection, drawn, templates)
                trials.append(one)
                mark = "!" if one.problems else " "
                click.echo(f"{mark} {injection.name}: {json.dumps(one.words)} status {one.status}, {one.seconds:.1f} s")
                for problem in one.problems:
                    click.echo(f"    {problem}")
    return trials


@click.command()
@click.option("--minutes", type=float, default=5.0, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--only", multiple=True, help="Injections with this text in their names.")
@click.option("--page", "path", type=click.Path(path_type=Path), help="Write the table here.")
def command(minutes: float, seed: int, only: tuple[str, ...], path: Path | None) -> None:
    """Run the campaign, and print the table. Exit status 1 if a trial has problems."""
    _with_own_memory()
    trials = campaign(minutes, seed, only)
    click.echo(table(trials))
    if path is not None:
        path.write_text(page(trials, minutes, seed), encoding="utf-8")
    sys.exit(1 if any(one.problems for one in trials) else 0)


def _with_own_memory() -> None:
    """Go on in a mount namespace with shared memory of its own, where that is possible."""
    if os.geteuid() != 0 or shutil.which("unshare") is None or _OWN_MEMORY in os.environ:
        return
    words = 'mount -t tmpfs none /dev/shm && exec "$@"'
    os.environ[_OWN_MEMORY] = "1"
    os.execvp("unshare", ["unshare", "-m", "sh", "-c", words, "sh", sys.executable, *sys.argv])


if __name__ == "__main__":
    command()
