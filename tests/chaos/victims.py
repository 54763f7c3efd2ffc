"""The processes of one trial by kind, found by a mark in their environment and by their program."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ddpcheck.launchers.process_handles import processes_under

MARK = "CHAOS_TRIAL"
"""The environment variable that all processes of a trial inherit."""

_HELPERS = ("ddpcheck.launchers.fork_server", "ddpcheck.launchers.multiprocess_parent", "multiprocessing.forkserver")
_ENGINES = ("bin/mpiexec", "hydra_pmi_proxy", "torch.distributed.run")
_RANKS = ("ddpcheck.worker", "ddpcheck.training", "ddpcheck.audit", "ddpcheck_benchmarks", "multiprocessing.spawn")


def marked(mark: str, driver: int) -> dict[int, str]:
    """Process id and command line of every running process of the trial, orphans included: they have the mark, or the
    session of the driver.
    """
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if (
            entry.name.isdigit()
            and int(entry.name) != os.getpid()
            and (command := _command(int(entry.name), mark, driver))
        ):
            found[int(entry.name)] = command
    return found


def _command(pid: int, mark: str, driver: int) -> str:
    """The command line of a running process of the trial; empty for any other process."""
    entry = Path(f"/proc/{pid}")
    with suppress(OSError, IndexError):
        state, _, _, session, *_ = (entry / "stat").read_bytes().rpartition(b")")[2].split()
        # a fork of the driver has no environment of its own in /proc
        ours = int(session) == driver or f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0")
        if ours and state != b"Z":
            return (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(
                errors="replace"
            ) or "without a command line"
    return ""


def of_kind(kind: str, mark: str, driver: int) -> list[int]:
    """The running processes of this kind: driver, rank, helper, engine."""
    if kind == "driver":
        return [driver]
    running = {pid: command for pid in processes_under(driver) if (command := _command(pid, mark, driver))}
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
