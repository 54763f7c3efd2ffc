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

REFERENCES = ("numpy_sockets", "numpy_mpi", "torch_ddp")
DEADLINE = 6.0
_MODULE = re.compile(r"^(?:\w+\.)+(?=\w+: )")
_USUAL = TensorSpec((20,))
_LONGEST = 200
CASES: dict[str, tuple[tuple[Operation, ...], tuple[Operation, ...]]] = {
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
}
"""What rank 0 calls, and what rank 1 calls."""


def job_of(case: str) -> Job:
    """Both agree, part, and call some more."""
    first, second = CASES[case]
    parted = [OnRanks((rank,), operation) for rank, calls in enumerate((first, second)) for operation in calls]
    return Job(2, (AllReduce(TensorSpec((3,))), *parted, AllReduce(_USUAL), Barrier()))


def seen(rank: RankTrace) -> str:
    """The outcome of one rank: the last line of its error, and the seconds since it entered the operation."""
    if rank.outcome == "done":
        return "came through to the end"
    if rank.outcome == "hung":
        return f"hangs; ended after {DEADLINE:g} s"
    lines = [line for line in rank.error.splitlines() if line.strip()]
    text = _MODULE.sub("", lines[-1] if lines else rank.outcome)
    entered = rank.last.entered if rank.last else None
    after = f"{rank.failed_at - entered:.1f} s: " if rank.failed_at is not None and entered else ""
    return after + (text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "...").replace("|", "\\|")


def rows(name: str, fork_servers: ForkServers) -> Iterator[tuple[str, str, str]]:
    """Each case with what both ranks see; one row if the reference cannot start here."""
    with Session(name, 2, deadline=DEADLINE, grace=DEADLINE, fork_servers=fork_servers) as session:
        for case in CASES:
            try:
                trace = session.run(job_of(case))
            except StartFailed as error:
                yield case, str(error), ""
                return
            first, second = (seen(rank) for rank in trace.ranks)
            yield case, first, second


@click.command()
@click.option("--page", type=click.Path(path_type=Path), help="Write the tables here.")
def command(page: Path | None) -> None:
    """Print what each rank sees in each case."""
    cores = len(os.sched_getaffinity(0))
    lines = [
        "# Ranks that make different calls",
        "",
        "Rank 1 makes another call than rank 0; then both continue. The table shows each rank's error, and the seconds from",
        f"its call to the error. Ranks that are silent for {DEADLINE:g} s hang. Made by",
        "`python tests/mismatch_table.py --page reports/mismatches.md`,",
        f"on {cores} cores, {platform.system()}, Python {platform.python_version()}.",
    ]
    with ForkServers() as fork_servers:
        for name in REFERENCES:
            if (reason := resolve(name)[0].launcher.unavailable()) is not None:
                lines += ["", f"## {name}", "", reason]
                continue
            lines += ["", f"## {name}", "", "| differs | rank 0 | rank 1 |", "|---|---|---|"]
            for row in rows(name, fork_servers):
                lines.append(f"| {' | '.join(row)} |")
                click.echo(lines[-1])
    text = "\n".join(lines) + "\n"
    if page is None:
        click.echo(text)
    else:
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    command()
