"""Ends an agent and its ranks if the driver is killed:

    python -m ddpcheck.launchers.agent_guard TOKEN TICKS SECONDS FOLDER < PIPE

Ranks end by themselves when they lose their driver, but a rank inside MPI_Init cannot: it holds the interpreter's lock.
The pipe closes with the driver. The first three arguments are those of AgentProcesses; FOLDER is the agent's own, or empty.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field

from .mpi_segments import abandoned_segments, remove_segments
from .orphaned_processes import clock_ticks, kill_leftover_processes

AGENT = "DDPCHECK_AGENT"
"""The environment variable that marks the processes of one agent."""
_LEAVE_WITHIN = 2.0
"""Seconds for ranks and agent to end by themselves, and to remove their own files."""


@dataclass(frozen=True)
class AgentProcesses:
    """An agent and all processes that it starts, in whichever group: they have the token in their environment.

    ticks, seconds: a time before the agent's start, as of clock_ticks() and of time.time().
    """

    token: str = field(default_factory=lambda: secrets.token_hex(8))
    ticks: int = field(default_factory=clock_ticks)
    seconds: float = field(default_factory=time.time)

    def end(self) -> None:
        """Kill those that still run, wait until they have ended, and remove the shared memory of MPI that they leave."""
        kill_leftover_processes(self.ticks, f"{AGENT}={self.token}")
        remove_segments(abandoned_segments(self.seconds))


def start_guard(processes: AgentProcesses, folder: str) -> subprocess.Popen[bytes]:
    """Start the program of this module, in a session of its own, so that signals to the driver do not reach it."""
    told = [processes.token, str(processes.ticks), str(processes.seconds), folder]
    return subprocess.Popen(
        [sys.executable, "-m", __name__, *told],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def dismiss(guard: subprocess.Popen[bytes]) -> None:
    """End a guard whose agent has ended."""
    guard.kill()
    guard.communicate()


def main() -> None:
    token, ticks, seconds, folder = sys.argv[1:]
    os.read(0, 1)
    time.sleep(_LEAVE_WITHIN)
    AgentProcesses(token, int(ticks), float(seconds)).end()
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
