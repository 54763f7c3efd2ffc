"""One Session for minutes, in which ranks are killed at times: every other Job is right, and no resource grows.

python tests/soak/run.py --minutes 10
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from contextlib import suppress

import click

from ddpcheck import Job, Session
from ddpcheck.job import AllReduce, TensorSpec
from ddpcheck_benchmarks.harness_speed_jobs import three_steps
from ddpcheck_benchmarks.soak import Footprint, shared_memory

_ROUND = 50
_FAULTS = (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV)
_GROWS_KIB = 32 * 1024
"""Additional memory of the driver that is allowed at the end, for caches of NumPy and Python."""


def _recovers(session: Session) -> bool:
    """After a rank has ended between two Jobs, the first of the next two Jobs fails, and the other is right."""
    operation = AllReduce(TensorSpec((5,)), "sum")
    job = Job(session.world_size, (operation,))
    expected = sum(operation.tensor.on(rank) for rank in range(session.world_size))
    traces = [session.run(job), session.run(job)]
    right = [
        all((result == expected).all() for result in trace.values(0, "result")) for trace in traces if trace.completed
    ]
    return traces[1].completed and all(right)


def _strike(session: Session, drawn: random.Random) -> None:
    """Kill a rank while a Job runs, or just before or after it."""
    victim, number, later = drawn.choice(session.pids), drawn.choice(_FAULTS), drawn.uniform(0, 0.02)

    def kill() -> None:
        with suppress(ProcessLookupError):
            os.kill(victim, number)

    timer = threading.Timer(later, kill)
    timer.start()
    session.run(three_steps(session.world_size))
    timer.join()


@click.command()
@click.option("--minutes", type=float, default=10.0, show_default=True)
@click.option("--adapter", default="numpy_sockets", show_default=True)
@click.option("--world-size", default=2, show_default=True)
@click.option("--seed", default=0, show_default=True)
def command(minutes: float, adapter: str, world_size: int, seed: int) -> None:
    """Print Jobs, faults, and the driver's memory, threads and descriptors after the first round and at the end.

    Exit status 1 if a Job was wrong, or a resource has grown.
    """
    drawn, segments = random.Random(seed), shared_memory()
    jobs = faults = wrong = 0
    first: Footprint | None = None
    until = time.monotonic() + 60 * minutes
    with Session(adapter, world_size) as session:
        while time.monotonic() < until or first is None:
            traces = session.run_many([three_steps(world_size, drawn.randrange(1000)) for _ in range(_ROUND)])
            wrong += sum(not trace.completed for trace in traces)
            _strike(session, drawn)
            wrong += not _recovers(session)
            jobs, faults = jobs + _ROUND + 3, faults + 1
            first = first or Footprint.of(os.getpid())
        last, starts = Footprint.of(os.getpid()), session.starts
    left = shared_memory() - segments
    click.echo(
        f"{adapter}, world size {world_size}: {jobs} Jobs, {faults} faults, ranks started {starts} x, {wrong} wrong"
    )
    click.echo(f"driver: {first}, after the first round")
    click.echo(f"        {last}, at the end; {left} segments left in /dev/shm")
    grown = (
        last.descriptors > first.descriptors
        or last.threads > first.threads
        or last.resident > first.resident + _GROWS_KIB
    )
    sys.exit(1 if wrong or grown or left > 0 else 0)


if __name__ == "__main__":
    command()
