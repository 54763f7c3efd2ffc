"""Thousands of Jobs in one Session: Jobs per second, and growth of resources on any rank.

python -m ddpcheck_benchmarks.soak numpy_sockets --jobs 10000
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import click

from ddpcheck.session import Session

from .harness_speed_jobs import three_steps

_CHUNK = 500


@dataclass(frozen=True)
class Footprint:
    """Resources of one process: resident memory in KiB, threads, open descriptors."""

    resident: int
    threads: int
    descriptors: int

    @classmethod
    def of(cls, pid: int) -> Footprint:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        status = dict(line.split(":", 1) for line in lines if ":" in line)
        descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        return cls(int(status["VmRSS"].split()[0]), int(status["Threads"]), descriptors)


def shared_memory() -> int:
    """The number of segments in /dev/shm."""
    return len(list(Path("/dev/shm").iterdir()))


@click.command()
@click.argument("adapter", default="numpy_sockets")
@click.option("--jobs", default=10000, show_default=True, help="Three-step training Jobs to run.")
@click.option("--world-size", default=2, show_default=True)
def main(adapter: str, jobs: int, world_size: int) -> None:
    """Run JOBS in one Session; print Jobs per second, and every rank's footprint after 10 % and at the end."""
    segments = shared_memory()
    with Session(adapter, world_size) as session:
        session.run(three_steps(world_size))
        rates: list[float] = []
        early: list[Footprint] = []
        for start in range(0, jobs, _CHUNK):
            drawn = [three_steps(world_size, seed) for seed in range(start, start + _CHUNK)]
            began = time.perf_counter()
            traces = session.run_many(drawn)
            failed = [trace for trace in traces if not trace.completed]
            rates.append(_CHUNK / (time.perf_counter() - began))
            if failed:
                raise click.ClickException(f"{len(failed)} Jobs did not complete: {failed[0].ranks}")
            if not early and start + _CHUNK >= jobs / 10:
                early = [Footprint.of(pid) for pid in session.pids]
        late = [Footprint.of(pid) for pid in session.pids]
        starts = session.starts
    rates.sort()
    click.echo(
        f"{adapter}, world size {world_size}: {jobs} Jobs, ranks started {starts} x; Jobs per second: median of "
        f"{len(rates)} chunks {rates[len(rates) // 2]:.0f}, slowest {rates[0]:.0f}, fastest {rates[-1]:.0f}"
    )
    click.echo("rank   KiB after 10 %   at the end   threads        descriptors")
    for rank, (a, b) in enumerate(zip(early, late, strict=True)):
        change = f"{a.threads} -> {b.threads}        {a.descriptors} -> {b.descriptors}"
        click.echo(f"{rank:4}   {a.resident:14}   {b.resident:10}   {change}")
    click.echo(f"segments in /dev/shm: {segments} before, {shared_memory()} after")


if __name__ == "__main__":
    main()
