"""Judges mutants of the references by the conformance suite alone: counts the killed, lists the survivors.

    pip install cosmic-ray        # into any environment; ddpcheck and MPI may be in another one, given as --python
    python tests/mutation/run.py tests/mutation/mutants.jsonl --size 160 --seed 0
    python tests/mutation/run.py tests/mutation/mutants.jsonl --markdown reports/mutation.md

Each mutant gets a fresh copy of the tree, in which `ddpcheck check ADAPTER --exitfirst` runs: first the checks of the
changed file's families at two ranks and three, then those of other families that use it, then those at one and four.
The first failure kills it, as does a run that cannot start or does not end. Every judged mutant is a line of
mutants.jsonl, and is not judged again even if its line has moved, so an interrupted run continues. Remove the lines of
changed sources; after laws have changed, judge open mutants with --again. Reasons for survivors are in survivors.toml.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from mutants import Mutant, remade, sample
from report import is_open, markdown

ROOT = Path(__file__).resolve().parents[2]
ROOTS = ("harness", "implementations", "properties", "benchmarks", "reports")
SOURCES = "implementations/ddpcheck_implementations"
PACKAGES = ("numpy_network", "data_parallel", "numpy_sockets", "numpy_mpi")
DEADLINE = 300.0
"""Seconds for one run of checks: twenty times its time on an idle machine, to allow for a busy one."""

START_TIMEOUT = "40"
"""Seconds for which ranks of numpy_sockets try to meet."""


@dataclass(frozen=True)
class Judge:
    """adapters: those that use a file's code, each with its environment variables. first: the families of checks that
    concern the file, and the only ones for further adapters. then: the other families whose checks use it. world_sizes:
    at which it is used in every way, fastest first.
    """

    adapters: tuple[str, ...]
    first: tuple[str, ...]
    then: tuple[str, ...]
    world_sizes: str = "2,3"


TRAINING = ("gradients", "trajectories", "accumulation", "unused", "buckets", "replica_sync", "programs", "trainer")
TALK = ("collectives", "wire", "failures", "rendezvous", "buckets", "metrics", "trainer")
MESSAGES, MEETING = ("collectives", "wire", "failures"), ("rendezvous", "failures")
ENGINE = ("numpy_sockets", "numpy_sockets_small_buckets")
MEMORY, TCP = ("numpy_sockets",), ("numpy_sockets_tcp",)
HOSTS = ("numpy_sockets NUMPY_SOCKETS_HOSTS=2",)
"""Pairs of ranks are on emulated hosts, on which promises about bytes sent do not hold."""
OVER_STREAMS = Judge(TCP, MESSAGES, TALK)
OF_EVERY_TRANSPORT = Judge(MEMORY + TCP, MESSAGES, TALK)
JUDGES = {
    "numpy_network/": Judge(ENGINE[:1], ("gradients", "trajectories", "replica_sync"), TRAINING),
    "data_parallel/": Judge(ENGINE, ("replica_sync", "accumulation", "unused", "buckets"), (*TRAINING, "failures")),
    "data_parallel/sampler.py": Judge(ENGINE[:1], ("sampler",), TRAINING),
    "data_parallel/scores.py": Judge(ENGINE[:1], ("scores",), ()),
    "data_parallel/metrics.py": Judge(ENGINE[:1], ("metrics",), ("trainer",)),
    "data_parallel/streams.py": Judge(ENGINE[:1], ("randomness",), TRAINING),
    "data_parallel/trainer.py": Judge(ENGINE[:1], ("trainer",), ()),
    "data_parallel/checkpoint.py": Judge(ENGINE[:1], ("trainer",), ()),
    "numpy_mpi/": Judge(("numpy_mpi",), ("collectives", "wire"), TALK),
    "numpy_sockets/": Judge(MEMORY, MESSAGES, TALK),
    "numpy_sockets/algorithms/": OVER_STREAMS,
    "numpy_sockets/algorithms/choice.py": OF_EVERY_TRANSPORT,
    "numpy_sockets/algorithms/hierarchical.py": Judge(
        HOSTS, ("collectives", "failures"), ("buckets", "metrics", "trainer"), "3,4"
    ),
    "numpy_sockets/algorithms/recursive_doubling.py": replace(
        OVER_STREAMS, world_sizes="4,5"
    ),  # not used by fewer ranks
    "numpy_sockets/algorithms/recursive_halving.py": replace(OVER_STREAMS, world_sizes="4,5"),
    "numpy_sockets/connections/": OVER_STREAMS,
    "numpy_sockets/group.py": Judge(MEMORY + HOSTS, ("collectives", "failures"), TALK),
    "numpy_sockets/rendezvous/": Judge(TCP, MEETING, TALK),
    "numpy_sockets/rendezvous/host_memory.py": Judge(MEMORY + HOSTS, MEETING, TALK),
    "numpy_sockets/rendezvous/unix_sockets.py": Judge(("numpy_sockets_unix",), MEETING, TALK),
    "numpy_sockets/start.py": Judge(MEMORY + HOSTS, MEETING, TALK),
    **{
        f"numpy_sockets/{name}.py": OF_EVERY_TRANSPORT
        for name in ("communicator", "connections/wire_format", "operation_order")
    },
}


def judge_of(file: str) -> Judge:
    """The Judge of the longest matching prefix."""
    name = file.removeprefix(f"{SOURCES}/")
    return JUDGES[max((begin for begin in JUDGES if name.startswith(begin)), key=len)]


@dataclass(frozen=True)
class MutantResult:
    """The outcome of a Mutant. killed_by: the check that failed, or the reason why none ran; empty if the mutant
    survived.
    """

    file: str
    place: tuple[int, int]
    operator: str
    diff: str
    killed_by: str
    seconds: float


def runs(judge: Judge) -> Iterator[tuple[str, list[str]]]:
    """(adapter, arguments) of each `ddpcheck check`: the likeliest to kill first."""
    rest = tuple(family for family in judge.then if family not in judge.first)
    main, *others = judge.adapters
    yield main, ["--world-size", judge.world_sizes, *_checks(judge.first)]
    if rest:
        yield main, ["--world-size", judge.world_sizes, *_checks(rest)]
    for other in others:
        yield other, ["--world-size", judge.world_sizes, *_checks(judge.first)]
    if judge.world_sizes == "2,3":
        yield main, ["--world-size", "1,4", *_checks(judge.first)]


def _checks(families: tuple[str, ...]) -> list[str]:
    return [word for family in families for word in ("--check", family)]


def killed_by(tree: Path, judge: Judge, python: str) -> str:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(str(tree / root) for root in ROOTS),
        "NUMPY_SOCKETS_START_TIMEOUT": START_TIMEOUT,
    }
    for name, arguments in runs(judge):
        adapter, *variables = name.split()
        verdicts = tree / "verdicts.json"
        command = [python, "-m", "ddpcheck", "check", adapter, "--exitfirst", "--json", str(verdicts), *arguments]
        with subprocess.Popen(
            command,
            cwd=tree,
            env=environment | dict(variable.split("=") for variable in variables),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            try:
                _, error = process.communicate(timeout=DEADLINE)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGINT)  # ddpcheck then ends its ranks
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                return f"no end after {DEADLINE:g} s ({adapter})"
        if process.returncode:
            return _first_failure(verdicts) or f"{error.decode().strip().splitlines()[-1:]} ({adapter})"
    return ""


def _first_failure(verdicts: Path) -> str:
    if not verdicts.exists():
        return ""
    every = json.loads(verdicts.read_text())["verdicts"]
    return next(
        (
            f"{verdict['check']} ({verdict['adapter']}, {verdict['world_size']} ranks)"
            for verdict in every
            if verdict["status"] in ("failed", "hung", "unknown")
        ),
        "",
    )


@contextmanager
def compiled_copy(python: str) -> Iterator[Path]:
    """A copy of the present tree, which may be edited meanwhile, with its bytecode, so that ranks need not compile."""
    with tempfile.TemporaryDirectory(prefix="unmutated-") as folder:
        for root in ROOTS:
            shutil.copytree(ROOT / root, Path(folder, root))
        subprocess.run([python, "-m", "compileall", "-q", folder], check=True)
        yield Path(folder)


def judge(mutant: Mutant, original: Path, python: str) -> MutantResult:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        tree = shutil.copytree(original, Path(folder, "tree"))
        (tree / mutant.file).write_text(mutant.source)
        found = killed_by(tree, judge_of(mutant.file), python)
    seconds = round(time.monotonic() - began, 1)
    return MutantResult(mutant.file, mutant.place, mutant.operator, mutant.diff, found, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--size", type=int, default=160)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="only files whose name contains this")
    parser.add_argument("--again", action="store_true", help="judge the open mutants of survivors.toml again")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has ddpcheck's dependencies")
    parser.add_argument("--markdown", type=Path, help="write the report of the results so far, and judge nothing")
    options = parser.parse_args()
    done = _read(options.results)
    if options.markdown:
        options.markdown.write_text(
            markdown([asdict(one) for one in done], PACKAGES, options.size, options.seed), encoding="utf-8"
        )
        return
    files = [str(path.relative_to(ROOT)) for name in PACKAGES for path in sorted((ROOT / SOURCES / name).glob("*.py"))]
    with compiled_copy(options.python) as original:
        drawn = sample(original, files, options.size, options.seed, options.only)
        if options.again:
            drawn = (
                mutant for one in done if options.only in one.file and (mutant := _again(one, original)) is not None
            )
        for mutant in drawn:
            if not options.again and any(_same(one, mutant) for one in done):
                continue
            one = judge(mutant, original, options.python)
            others = [other for other in _read(options.results) if not _same(other, mutant)]
            options.results.write_text("".join(json.dumps(asdict(each)) + "\n" for each in (*others, one)))
            verdict = one.killed_by or f"SURVIVED\n{one.diff}"
            print(f"{one.seconds:6.1f} s {one.file.removeprefix(SOURCES)}:{one.place[0]} {verdict}", flush=True)


def _again(one: MutantResult, original: Path) -> Mutant | None:
    return remade(original, one.file, one.place, one.operator, one.diff) if is_open(asdict(one)) else None


def _same(one: MutantResult, mutant: Mutant) -> bool:
    """Whether both are the same mutant; the line may have moved if no other is equal."""
    if (one.file, one.diff) != (mutant.file, mutant.diff):
        return False
    lines = [line.strip() for line in mutant.source.splitlines()]
    return one.place == mutant.place or lines.count(mutant.diff.splitlines()[0].removeprefix("- ")) == 0


def _read(results: Path) -> list[MutantResult]:
    if not results.exists():
        return []
    lines = map(json.loads, results.read_text().splitlines())
    return [replace(MutantResult(**line), place=tuple(line["place"])) for line in lines]


if __name__ == "__main__":
    main()
