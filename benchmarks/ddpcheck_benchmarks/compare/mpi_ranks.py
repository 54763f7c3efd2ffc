"""One rank of `ddpcheck compare mpi`: python -m ddpcheck_benchmarks.compare.mpi_ranks ADAPTER SIZES PAIRS, under
mpiexec.

float32, sum, in place. Bursts go A B B A, with a barrier before each call; the time of a call is that of the slowest
rank. The ratio is the median over pairs of bursts, with its 95 % interval.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import click
import numpy as np

from ddpcheck.contract.rank_context import rank_context
from ddpcheck.running.adapter_lookup import resolve

from ..interleaved_runs import in_turns
from ..sizes import named, sizes
from ..stats import interval

_BURST_SECONDS = 0.05
_MOST_CALLS = 400


@click.command()
@click.argument("adapter")
@click.argument("wanted", metavar="SIZES")
@click.argument("pairs", type=int)
def main(adapter: str, wanted: str, pairs: int) -> None:
    """Print, for each size, the microseconds of both and their ratio."""
    from mpi4py import MPI

    world: Any = MPI.COMM_WORLD
    found, _ = resolve(adapter)
    collectives: Any = found.connect(rank_context()).collectives
    if world.rank == 0:
        click.echo(f"world size {world.size}: {found.name} beside a bare Allreduce\n")
        click.echo("| bytes | bare (µs) | adapter (µs) | more (µs) | ratio |\n|---:|---:|---:|---:|---:|")
    for size in sizes(wanted):
        array = np.zeros(size // 4, np.float32)

        def bare(array: Any = array) -> None:
            world.Allreduce(MPI.IN_PLACE, array, MPI.SUM)

        def ours(array: Any = array) -> None:
            collectives.all_reduce_in_place(array)

        _burst(world, bare, 3)
        calls = world.bcast(int(min(_MOST_CALLS, max(3, _BURST_SECONDS / _burst(world, bare, 3)))))
        both = in_turns(partial(_burst, world, bare, calls), partial(_burst, world, ours, calls), pairs)
        if world.rank == 0:
            alone, through = np.median(both, axis=0) * 1e6
            ratios = [b / a for a, b in both]
            low, high = interval(ratios)
            more = np.median([b - a for a, b in both]) * 1e6
            click.echo(
                f"| {named(size)} | {alone:,.2f} | {through:,.2f} | {more:+,.2f} "
                f"| {np.median(ratios):.3f} ({low:.3f} to {high:.3f}) |"
            )


def _burst(world: Any, call: Callable[[], None], calls: int) -> float:
    """The median over calls of the slowest rank's seconds."""
    from mpi4py import MPI

    times = np.empty(calls)
    for index in range(calls):
        world.Barrier()
        began = time.perf_counter()
        call()
        times[index] = time.perf_counter() - began
    world.Allreduce(MPI.IN_PLACE, times, MPI.MAX)
    return float(np.median(times))


if __name__ == "__main__":
    main()
