"""`ddpcheck compare all-reduce`: numpy_sockets and other implementations: medians in microseconds, and ratios with
their spread.

float32, sum, in place, one thread for each rank. Each implementation has its own processes (all_reduce_ranks.py), which
take turns (alternating_programs.py). A turn is a burst of calls, from the first rank's begin to the last rank's end;
the order of turns is drawn each time. "memory" is not an all-reduce: each rank reads and writes its part of all ranks'
arrays, the least memory traffic of an all-reduce. An MPI's Python needs ddpcheck with its extra `mpi`.
"""

from __future__ import annotations

import importlib.util
import os
import random
import shlex
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import product

import click
from rich.console import Console
from rich.progress import track

from ddpcheck.cli.number_options import COUNT, RANKS

from ..sizes import size as size_of
from .all_reduce_implementations import MAKERS, MEMORY
from .all_reduce_ranks import of_launcher, of_python
from .alternating_programs import Start, started

OURS = ("tcp", "unix", "shm", "shm, empty()")
Times = dict[str, dict[int, list[float]]]
"""For each implementation, microseconds by size, one for each turn."""
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20}


@click.command("all-reduce")
@click.option("-w", "--world-size", type=RANKS, default=2, show_default=True)
@click.option("--min-bytes", default="4", show_default=True, help="The smallest array, such as 4 or 64KiB.")
@click.option("--max-bytes", default="64MiB", show_default=True, help="The largest array.")
@click.option(
    "--turns", type=COUNT, default=11, show_default=True, help="Turns of each implementation at each size in a sweep."
)
@click.option(
    "--sweeps", type=COUNT, default=1, show_default=True, help="Number of sweeps; each starts all processes again."
)
@click.option(
    "--mpi",
    "mpis",
    multiple=True,
    help='NAME=COMMAND that starts the ranks of an MPI, such as MPICH="mpiexec -n 2 python".',
)
@click.option(
    "--tuned", is_flag=True, help="Measure each MPI a second time: arrays in pieces of 4 MiB, and freed memory kept."
)
@click.option("--without", multiple=True, type=click.Choice(list(MAKERS)), help="Leave out this implementation.")
@click.option(
    "--one-by-one", is_flag=True, help="Start every rank as a new process.  [default: fork all from one process]"
)
def command(
    world_size: int,
    min_bytes: str,
    max_bytes: str,
    turns: int,
    sweeps: int,
    mpis: Sequence[str],
    tuned: bool,
    without: Sequence[str],
    one_by_one: bool,
) -> None:
    """Compare the all-reduces of numpy_sockets with Gloo, MPI, a ring that pickles, and a memory limit.

    Prints a table of medians, and tables of ratios. "memory" is not an all-reduce: each rank reads and writes its part
    of all ranks' arrays, the least memory traffic of an all-reduce. An MPI's Python needs ddpcheck with its extra
    `mpi`.
    """
    sizes = _sizes(_bytes(min_bytes), _bytes(max_bytes))
    names = [name for name in MAKERS if name not in without]
    if importlib.util.find_spec("torch") is None and "Gloo" in names:
        names.remove("Gloo")
    if not sizes:
        raise click.UsageError(f"no size is measured from {min_bytes} to {max_bytes}; raise --max-bytes")
    launchers = dict(map(_mpi, mpis))
    starts: dict[str, Start] = {name: of_python(name, world_size, one_by_one=one_by_one) for name in names}
    for name, launcher in launchers.items():
        starts[name] = of_launcher(launcher, world_size, tuned=False)
        if tuned:
            starts[f"{name}, tuned"] = of_launcher(launcher, world_size, tuned=True)
    times: Times = {}
    for sweep in range(sweeps):
        try:
            _sweep(times, sweep, starts, sizes, turns, world_size, f"sweep {sweep + 1} of {sweeps}")
        except RuntimeError as error:
            raise click.ClickException(str(error)) from error
    _add_best(times, "best MPI", list(launchers))
    _add_best(times, "best MPI, tuned", [f"{name}, tuned" for name in launchers if tuned])
    click.echo(f"World size {world_size} on {len(os.sched_getaffinity(0))} processors, {sweeps * turns} turns.\n")
    click.echo(_medians(times, sizes))
    for other in (name for name in times if name not in OURS):
        what = "ours over the time of memory" if other == MEMORY else f"time of {other} over ours"
        click.echo(f"\n{what}: median of turns, and the range of their middle 80 %\n")
        click.echo(_ratios(times, sizes, other))


def _sweep(
    times: Times, seed: int, starts: Mapping[str, Start], sizes: Sequence[int], turns: int, world_size: int, title: str
) -> None:
    """Start all programs, and add the times of their turns. RuntimeError if ranks do not connect, or end."""
    with ExitStack() as opened:
        programs = {name: opened.enter_context(started(name, start, world_size)) for name, start in starts.items()}
        for name in programs:
            times.setdefault(name, {size: [] for size in sizes})
        order = random.Random(seed)
        for size, _ in track(list(product(sizes, range(turns))), title, console=Console(stderr=True)):
            for name in order.sample(list(programs), len(programs)):
                times[name][size].append(programs[name].turn(size))


def _mpi(text: str) -> tuple[str, list[str]]:
    name, _, words = text.partition("=")
    if not name or not shlex.split(words):
        raise click.BadParameter(
            f'{text!r} should be NAME=COMMAND, such as MPICH="mpiexec -n 2 python"', param_hint="--mpi"
        )
    return name, shlex.split(words)


def _add_best(times: Times, name: str, names: Sequence[str]) -> None:
    """Add the time of the fastest of `names` at each size."""
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
