"""Runs a simulation in a process of its own, with a deadline. SimGrid may belong to another interpreter than ours."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..formulas import Link
from .schedules import Schedule

PROGRAM = Path(__file__).with_name("program.py")
SYSTEM_PYTHON = "/usr/bin/python3"
INSTALL = "install it for the system's Python with: apt-get install python3-simgrid (Debian, Ubuntu); or build it from https://simgrid.org"
_FIND_SECONDS = 30
_NO_TIME = 1e-18  # SimGrid needs a bandwidth even if bytes cost nothing


class SimulationFailed(Exception):
    """The simulation cannot run, or did not end in time; the message gives the remedy."""


@dataclass(frozen=True)
class Cluster:
    """Hosts with one rank and one link each, on one switch, or on leaf switches of `hosts_per_leaf` hosts.

    Each leaf has `uplinks` links to the spine, as fast as those of hosts: hosts_per_leaf / uplinks is how much it is
    oversubscribed. A path within a leaf has the link's alpha, one over the spine twice that. `slow_links` is the share of
    its bandwidth that a host's link has, `late` the seconds by which its rank begins later, both by host.
    """

    hosts: int
    link: Link
    hosts_per_leaf: int = 0
    uplinks: int = 1
    slow_links: Mapping[int, float] = field(default_factory=dict)
    late: Mapping[int, float] = field(default_factory=dict)


def simulate(
    cluster: Cluster, schedule: Schedule, sizes: Sequence[float], *, deadline: float = 120.0, python: str | None = None
) -> tuple[float, ...]:
    """Seconds of the all-reduce for each of the sizes in bytes, all in one simulation. SimulationFailed on failure."""
    if schedule.world_size != cluster.hosts:
        raise ValueError(
            f"{schedule.world_size} ranks on {cluster.hosts} hosts: give a cluster of as many hosts as ranks"
        )
    description = {
        "hosts": cluster.hosts,
        "bandwidth": 1 / max(cluster.link.beta, _NO_TIME),
        "latency": cluster.link.alpha,
        "gamma": cluster.link.gamma,
        "hosts_per_leaf": cluster.hosts_per_leaf,
        "uplinks": cluster.uplinks,
        "slow_links": cluster.slow_links,
        "late": cluster.late,
        "runs": [_rounds(schedule, size) for size in sizes],
    }
    answer = _run([python or find_python(), "-I", str(PROGRAM)], json.dumps(description), deadline)
    try:
        seconds: list[float] = json.loads(answer)["seconds"]
    except (ValueError, KeyError) as error:
        raise SimulationFailed(
            f"the simulation printed {answer[:200]!r}, which is not an answer; please report it"
        ) from error
    return tuple(seconds)


@functools.cache
def find_python() -> str:
    """An interpreter with SimGrid: ours, or the system's. SimulationFailed if neither has SimGrid."""
    for python in dict.fromkeys((sys.executable, SYSTEM_PYTHON)):
        try:
            found = subprocess.run(
                [python, "-I", "-c", "import simgrid"], capture_output=True, timeout=_FIND_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if found.returncode == 0:
            return python
    raise SimulationFailed(f"neither this Python nor {SYSTEM_PYTHON} has SimGrid; {INSTALL}")


def _run(command: Sequence[str], text: str, deadline: float) -> str:
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=deadline, check=False)
    except subprocess.TimeoutExpired:
        raise SimulationFailed(f"the simulation took more than {deadline:g} s; simulate fewer ranks or sizes") from None
    except OSError as error:
        raise SimulationFailed(f"{command[0]} cannot be started: {error}; {INSTALL}") from error
    if done.returncode:
        raise SimulationFailed(
            f"the simulation ended with exit status {done.returncode}: {done.stderr.strip()[-500:]}; {INSTALL}"
        )
    return done.stdout


def _rounds(schedule: Schedule, size: float) -> list[list[Any]]:
    """Each rank's sends and receives, round by round, as program.py reads them."""
    ranks: list[list[Any]] = [[] for _ in range(schedule.world_size)]
    for transfers in schedule.rounds:
        parts: dict[int, tuple[list[tuple[int, float]], list[int], float]] = {}
        for transfer in transfers:
            bytes_moved = (transfer.stop - transfer.start) / schedule.chunks * size
            parts.setdefault(transfer.source, ([], [], 0.0))[0].append((transfer.dest, bytes_moved))
            sends, sources, reduced = parts.get(transfer.dest, ([], [], 0.0))
            reduced += bytes_moved if transfer.reduces else 0.0
            parts[transfer.dest] = (sends, [*sources, transfer.source], reduced)
        for rank, part in parts.items():
            ranks[rank].append(part)
    return ranks
