"""The errors that each rank shows if ranks make different calls, on each reference, and the seconds until then.

python tests/mismatch_table.py --page reports/mismatches.md
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path

import click

from ddpcheck import Job, Session, StartFailed
from ddpcheck.job import AllReduce, Barrier, Broadcast, Operation, TensorSpec
from ddpcheck.launchers.fork_servers import ForkServers
from ddpcheck.operations.probes import OnRanks
from ddpcheck.running.adapter_lookup import resolve
from ddpcheck.trace import RankTrace

REFERENCES = ("numpy_sockets", "numpy_sockets_tcp", "numpy_sockets_unix", "numpy_mpi", "torch_ddp")
DEADLINE = 6.0
_MODULE = re.compile(r"^(?:\w+\.)+(?=\w+: )")
_USUAL = TensorSpec((20,))
_LONGEST = 200
CASES: dict[str, tuple[tuple[Operation, ...], ...]] = {
    "operation": ((AllReduce(_USUAL),), (Barrier(),)),
    "operation: broadcast": ((AllReduce(_USUAL),), (Broadcast(_USUAL),)),
    "shape": ((AllReduce(_USUAL),), (AllReduce(TensorSpec((19,))),)),
    "shape: large": ((AllReduce(TensorSpec((50_000,))),), (AllReduce(TensorSpec((49_999,))),)),
    "dtype": ((AllReduce(_USUAL),), (AllReduce(TensorSpec((10,), "float64")),)),
    "reduction": ((AllReduce(_USUAL),), (AllReduce(_USUAL, "max"),)),
    "order": ((AllReduce(_USUAL), Broadcast(_USUAL)), (Broadcast(_USUAL), AllReduce(_USUAL))),
    "root": ((Broadcast(_USUAL, 0),), (Broadcast(_USUAL, 1),)),
    "root: neither its own": ((Broadcast(_USUAL, 1),), (Broadcast(_USUAL, 0),)),
    "one call more": ((), (AllReduce(_USUAL),)),
    "root: a circle": ((Broadcast(_USUAL, 1),), (Broadcast(_USUAL, 2),), (Broadcast(_USUAL, 0),)),
    "root: a circle of four": tuple((Broadcast(_USUAL, root),) for root in (1, 2, 3, 0)),
}
"""The calls of rank 0, of rank 1, and so on."""


def job_of(case: str) -> Job:
    """A Job in which all ranks agree, then differ, then call some more."""
    each = CASES[case]
    parted = [OnRanks((rank,), operation) for rank, calls in enumerate(each) for operation in calls]
    return Job(len(each), (AllReduce(TensorSpec((3,))), *parted, AllReduce(_USUAL), Barrier()))


def seen(rank: RankTrace) -> str:
    """The outcome of one rank: the last line of its error, and the seconds since it entered the operation."""
    if rank.outcome == "done":
        return "completed"
    if rank.outcome == "hung":
        return f"hangs; ended after {DEADLINE:g} s"
    lines = [line for line in rank.error.splitlines() if line.strip()]
    text = _MODULE.sub("", lines[-1] if lines else rank.outcome)
    entered = rank.last.entered if rank.last else None
    after = f"{rank.failed_at - entered:.1f} s: " if rank.failed_at is not None and entered else ""
    return after + (text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "...").replace("|", "\\|")


def rows(name: str, world_size: int, fork_servers: ForkServers) -> Iterator[tuple[str, ...]]:
    """Each case for this world size with the ranks' outcomes; one row if the reference cannot start here."""
    with Session(name, world_size, deadline=DEADLINE, grace=DEADLINE, fork_servers=fork_servers) as session:
        for case in (case for case, each in CASES.items() if len(each) == world_size):
            try:
                trace = session.run(job_of(case))
            except StartFailed as error:
                yield case, str(error), *[""] * (world_size - 1)
                return
            yield case, *(seen(rank) for rank in trace.ranks)


@click.command()
@click.option("--page", type=click.Path(path_type=Path), help="Write the tables here.")
def command(page: Path | None) -> None:
    """Print the outcome of each rank in each case."""
    cores = len(os.sched_getaffinity(0))
    lines = [
        "# Ranks that make different calls",
        "",
        "Rank 1 makes another call than rank 0; then both continue. In a circle, each of three or four ranks takes another rank",
        "for the root, so that no rank sends anything. The tables show each rank's error, and the seconds from its call to the",
        f"error. Ranks that are silent for {DEADLINE:g} s hang. Made by",
        "`python tests/mismatch_table.py --page reports/mismatches.md`,",
        f"on {cores} cores, {platform.system()}, Python {platform.python_version()}.",
    ]
    with ForkServers() as fork_servers:
        for name in REFERENCES:
            if (reason := resolve(name)[0].launcher.unavailable()) is not None:
                lines += ["", f"## {name}", "", reason]
                continue
            lines += ["", f"## {name}"]
            for world_size in sorted({len(each) for each in CASES.values()}):
                ranks = [f"rank {rank}" for rank in range(world_size)]
                lines += ["", f"| differs | {' | '.join(ranks)} |", f"|{'---|' * (world_size + 1)}"]
                for row in rows(name, world_size, fork_servers):
                    lines.append(f"| {' | '.join(row)} |")
                    click.echo(lines[-1])
    text = "\n".join(lines) + "\n"
    if page is None:
        click.echo(text)
    else:
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    command()
