"""Does the harness slow down what it times? The same step and the same all-reduce, timed by it and by hand, in turn.

python -m ddpcheck_benchmarks.overhead

Both process groups are there all the time; one waits in a read while the other works (A B B A), so that a drift of the machine
meets both. The ratio is the median over pairs of bursts, with its 95 % interval.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
import numpy as np

from ddpcheck.job import Job, MeasureCollective
from ddpcheck.references import resolve
from ddpcheck.session import Session

from .ranks_time import slowest, stamps, why
from .sizes import named
from .stats import interval
from .step_cases import StepCase
from .turns import in_turns

RANKS = 2
_SIZES = (4, 64 << 10, 25 << 20)
_WARMUPS = 5


@click.command()
@click.option("--pairs", default=20, show_default=True, help="Bursts of each side.")
@click.option("--torch", "torch_ddp", default="torch_ddp", show_default=True, help="The adapter whose step is timed.")
@click.option(
    "--mpi", "numpy_mpi", default="numpy_mpi", show_default=True, help="The adapter whose all-reduce is timed."
)
def main(pairs: int, torch_ddp: str, numpy_mpi: str) -> None:
    """Print harness / by hand for a torch DDP step and an MPI all-reduce in place at 4 B, 64 KiB and 25 MiB, on two ranks."""
    case = StepCase("torch_ddp", RANKS, "small", "weak")
    _compare("torch DDP step", torch_ddp, "step", case.job([case.steps(_WARMUPS, 20)]), 20, pairs)
    for size in _SIZES:
        iterations = 5 if size > 1 << 20 else 200
        operation = MeasureCollective("all_reduce", size // 4, in_place=True, warmups=_WARMUPS, iterations=iterations)
        _compare(f"MPI all-reduce, {named(size)}", numpy_mpi, str(size), Job(RANKS, (operation,)), iterations, pairs)


def _compare(title: str, adapter: str, what: str, job: Job, iterations: int, pairs: int) -> None:
    with Session(adapter, RANKS, deadline=120.0) as session, _by_hand(adapter, what, iterations) as by_hand:

        def harness() -> float:
            trace = session.run(job)
            if not trace.completed:
                raise click.ClickException(why(trace))
            return float(np.median(slowest(stamps(trace, 0, "begin"), stamps(trace, 0, "end"))))

        for burst in (harness, by_hand):
            burst()  # what a process does the first time
        both = in_turns(by_hand, harness, pairs)
    ratios = [ours / theirs for theirs, ours in both]
    low, high = interval(ratios)
    theirs, ours = np.median(both, axis=0) * 1e6
    click.echo(
        f"{title:<24} harness {ours:10.2f} µs, by hand {theirs:10.2f} µs, ratio {np.median(ratios):.3f} [{low:.3f}, {high:.3f}]"
    )


@contextmanager
def _by_hand(adapter: str, what: str, iterations: int) -> Iterator[Callable[[], float]]:
    """The bare script on as many ranks, by the adapter's launcher; a burst is a call."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(120.0)
        variables = {"BARE_DRIVER": f"127.0.0.1:{server.getsockname()[1]}", "BARE_WHAT": what, "OMP_NUM_THREADS": "1"}
        launched = resolve(adapter)[0].launcher.start([sys.executable, "-m", f"{__package__}.bare"], RANKS, variables)
        sockets: list[socket.socket] = []
        try:
            sockets = [server.accept()[0] for _ in range(RANKS)]
            channels = [channel.makefile("rw") for channel in sockets]
            for channel in channels:
                channel.readline()

            def burst() -> float:
                for channel in channels:
                    channel.write(f"{_WARMUPS} {iterations}\n")
                    channel.flush()
                begin, end = np.array([json.loads(channel.readline()) for channel in channels]).swapaxes(0, 1)
                return float(np.median(slowest(begin, end)))

            yield burst
        finally:
            for connection in sockets:
                connection.close()
            launched.kill()


if __name__ == "__main__":
    main()
