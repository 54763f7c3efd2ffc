"""The processes of one trial by kind, found by a mark in their environment and by their program."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

MARK = "CHAOS_TRIAL"
"""The environment variable that all processes of a trial inherit."""

_HELPERS = ("ddpcheck.launchers.fork_server", "ddpcheck.launchers.multiprocess_parent", "multiprocessing.forkserver")
_ENGINES = ("bin/mpiexec", "hydra_pmi_proxy", "torch.distributed.run")
_RANKS = ("ddpcheck.worker", "ddpcheck.training", "ddpcheck.audit", "ddpcheck_benchmarks", "multiprocessing.spawn")


def marked(mark: str) -> dict[int, str]:
    """Process id and command line of every running process of the trial."""
    found: dict[int, str] = {}
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            if wanted not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            if (entry / "stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z":
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return found


def of_kind(kind: str, mark: str, driver: int) -> list[int]:
    """The running processes of this kind: driver, rank, helper, engine."""
    running = marked(mark)
    if kind == "driver":
        return [driver] if driver in running else []
    running.pop(driver, None)
    parents = {pid: _parent(pid) for pid in running}
    helpers = {pid for pid, command in running.items() if any(name in command for name in _HELPERS)}
    forked = {pid for pid in helpers if parents[pid] in helpers}  # a fork server has the command line of its parent
    engines = {pid for pid, command in running.items() if any(name in command for name in _ENGINES)}
    if kind == "helper":
        return sorted(helpers - forked)
    if kind == "engine":
        return sorted(engines)
    ranks = {pid for pid, command in running.items() if any(name in command for name in _RANKS)}
    return sorted((ranks | forked) - (helpers - forked) - engines)


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return 0
