"""All-reduce of numpy_sockets beside others, in turns in one run: medians in microseconds, and ratios with their spread.

python -m ddpcheck_benchmarks.compare_all_reduce --world-size 2 --max-bytes 64MiB
python -m ddpcheck_benchmarks.compare_all_reduce --mpi MPICH="/venvs/mpich/bin/mpiexec -n 2 /venvs/mpich/bin/python" --tuned

float32, sum, in place, one thread for each rank; a turn lasts from when the first rank begins until the last one ends.
"memory" is no all-reduce: each rank reads and writes its part of all ranks' arrays, the least that an all-reduce must touch.
An MPI has processes of its own, which take turns with the others, a whole sweep at a time; its Python needs mpi4py, NumPy
and click.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack

import click

from ddpcheck.environment import rank_context
from ddpcheck.launchers.ports import reserve_port

from .compared import MAKERS, MEMORY, Turn, measure, of_mpi, take_turns
from .sizes import size as size_of

OURS = ("tcp", "unix", "shm", "shm, empty()")
Times = dict[str, dict[int, list[float]]]
"""Of each of those compared, microseconds by size, one for each turn."""
_KEEPING = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 33)}
"""An MPI's temporary arrays then come from memory that is there already."""
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20}


@click.command()
@click.option("--world-size", default=2, show_default=True)
@click.option("--min-bytes", default="4", show_default=True)
@click.option("--max-bytes", default="64MiB", show_default=True)
@click.option("--turns", default=11, show_default=True, help="Of each at each size in a sweep.")
@click.option("--sweeps", default=1, show_default=True, help="Processes are started afresh for each.")
@click.option("--mpi", "mpis", multiple=True, help="NAME=COMMAND that starts the ranks of an MPI's own Python.")
@click.option("--tuned", is_flag=True, help="Each MPI once more: arrays cut into 1 MiB, and freed memory kept.")
@click.option("--without", multiple=True, help=f"One of {', '.join(MAKERS)}.")
@click.option("--ports", hidden=True, help="Be a rank.")
@click.option("--as-mpi", is_flag=True, hidden=True, help="Be a rank of an MPI.")
def main(
    world_size: int,
    min_bytes: str,
    max_bytes: str,
    turns: int,
    sweeps: int,
    mpis: Sequence[str],
    tuned: bool,
    without: Sequence[str],
    ports: str | None,
    as_mpi: bool,
) -> None:
    """Print a table of medians, and one of ratios."""
    sizes = _sizes(_bytes(min_bytes), _bytes(max_bytes))
    names = [name for name in MAKERS if name not in without]
    if importlib.util.find_spec("torch") is None and "Gloo" in names:
        names.remove("Gloo")
    if ports is not None:
        print(measure(names, rank_context(), [int(port) for port in ports.split(",")], sizes, turns), flush=True)
        os._exit(0)  # Gloo may abort when it is torn down
    if as_mpi:
        _be_a_rank_of_mpi(sizes, turns, world_size, tuned)
        return
    arguments = [
        f"--world-size={world_size}",
        f"--min-bytes={min_bytes}",
        f"--max-bytes={max_bytes}",
        f"--turns={turns}",
    ]
    times: Times = {}
    commands = {name: command for name, _, command in (mpi.partition("=") for mpi in mpis)}
    for _ in range(sweeps):
        _extend(times, _processes(world_size, [*arguments, *(f"--without={name}" for name in without)], len(names)))
        for name, command in commands.items():
            _extend(times, {name: _of_mpi(command, arguments, _alone())})
            if tuned:
                _extend(times, {f"{name}, tuned": _of_mpi(command, [*arguments, "--tuned"], {**_alone(), **_KEEPING})})
    _add_best(times, "best MPI", list(commands))
    _add_best(times, "best MPI, tuned", [f"{name}, tuned" for name in commands if tuned])
    click.echo(f"World size {world_size} on {len(os.sched_getaffinity(0))} processors, {sweeps * turns} turns.\n")
    click.echo(_medians(times, sizes))
    for other in (name for name in times if name not in OURS):
        what = "ours over the time of memory" if other == MEMORY else f"time of {other} over ours"
        click.echo(f"\n{what}: median of turns, and the middle eight tenths of them\n")
        click.echo(_ratios(times, sizes, other))


def _processes(world_size: int, arguments: Sequence[str], count: int) -> Times:
    """One sweep of all that need no launcher of their own."""
    with ExitStack() as held:
        ports = [reserve_port() for _ in range(count + 1)]
        for port in ports:
            held.callback(port.release)
        numbers = ",".join(str(port.number) for port in ports)
        shared = {**_alone(), "WORLD_SIZE": str(world_size), "LOCAL_WORLD_SIZE": str(world_size)}
        ranks = [
            subprocess.Popen(
                [sys.executable, "-m", __spec__.name, *arguments, f"--ports={numbers}"],
                env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.PIPE,
            )
            for rank in range(world_size)
        ]
        try:
            told = [json.loads(rank.communicate()[0]) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
    return {
        name: {int(size): _lasted([each[name][size] for each in told]) for size in by_size}
        for name, by_size in told[0].items()
    }


def _of_mpi(command: str, arguments: Sequence[str], environment: Mapping[str, str]) -> dict[int, list[float]]:
    """One sweep."""
    whole = [*shlex.split(command), "-m", __spec__.name, *arguments, "--as-mpi"]
    told = subprocess.run(whole, stdout=subprocess.PIPE, check=True, env=environment)
    return {int(size): turns for size, turns in json.loads(told.stdout).items()}


def _be_a_rank_of_mpi(sizes: Sequence[int], turns: int, world_size: int, tuned: bool) -> None:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    if world.size != world_size:
        raise click.UsageError(
            f"the MPI started {world.size} ranks, not {world_size}: is this the launcher of its Python?"
        )
    taken = take_turns({"": of_mpi(tuned)}, world.Barrier, world.rank, world.size, sizes, turns)[""]
    told = world.gather(taken)
    if told is not None:
        print(json.dumps({size: _lasted([each[size] for each in told]) for size in sizes}))


def _lasted(ranks: Sequence[Sequence[Turn]]) -> list[float]:
    """Microseconds of an all-reduce in each turn."""
    return [
        (max(end for _, end, _ in turn) - min(begin for begin, _, _ in turn)) / turn[0][2] * 1e6
        for turn in zip(*ranks, strict=True)
    ]


def _alone() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def _extend(times: Times, more: Times) -> None:
    for name, by_size in more.items():
        for size, turns in by_size.items():
            times.setdefault(name, {}).setdefault(size, []).extend(turns)


def _add_best(times: Times, name: str, names: Sequence[str]) -> None:
    """At each size the one of them that is fastest."""
    if len(names) > 1:
        sizes = times[names[0]]
        times[name] = {size: min((times[one][size] for one in names), key=statistics.median) for size in sizes}


def _medians(times: Times, sizes: Sequence[int]) -> str:
    return _table(times, sizes, lambda name, size: f"{statistics.median(times[name][size]):,.1f}")


def _ratios(times: Times, sizes: Sequence[int], other: str) -> str:
    def cell(own: str, size: int) -> str:
        pairs = zip(times[other][size], times[own][size], strict=True)
        ratios = sorted(mine / theirs if other == MEMORY else theirs / mine for theirs, mine in pairs)
        tenth = len(ratios) // 10
        return f"{statistics.median(ratios):.2f} ({ratios[tenth]:.2f} to {ratios[-1 - tenth]:.2f})"

    return _table([own for own in OURS if own in times], sizes, cell)


def _table(names: Iterable[str], sizes: Sequence[int], cell: Callable[[str, int], str]) -> str:
    names = list(names)
    lines = ["| bytes | " + " | ".join(names) + " |", "|---:|" + "---:|" * len(names)]
    lines += [f"| {_words(size)} | " + " | ".join(cell(name, size) for name in names) + " |" for size in sizes]
    return "\n".join(lines)


def _sizes(least: int, most: int) -> list[int]:
    steps = [4, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 25 << 20, 64 << 20, 100 << 20, 256 << 20]
    return [size for size in steps if least <= size <= most]


def _bytes(text: str) -> int:
    try:
        return size_of(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _words(size: int) -> str:
    unit = next(unit for unit in ("MiB", "KiB", "") if size >= _UNITS[unit] and not size % _UNITS[unit])
    return f"{size // _UNITS[unit]} {unit}".strip()


if __name__ == "__main__":
    main()
