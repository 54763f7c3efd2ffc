"""Ends an agent and its ranks if the driver is killed:

    python -m ddpcheck.launchers.agent_guard SINCE MARK FOLDER < PIPE

Ranks end by themselves when they lose their driver, but a rank inside MPI_Init cannot: it holds the interpreter's lock.
The pipe closes with the driver. SINCE is on the clock of orphaned_processes. Processes with MARK in their environment, and
FOLDER, belong to the agent.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time

from .mpi_segments import abandoned_segments, remove_segments
from .orphaned_processes import clock_ticks, kill_leftover_processes

_LEAVE_WITHIN = 2.0
"""Seconds for ranks and agent to end by themselves, and to remove their own files."""


def start_guard(mark: str, folder: str) -> subprocess.Popen[bytes]:
    """Guard the agent whose processes have `mark` (NAME=value) in their environment; kill the guard when they have ended.

    folder: the agent's own, empty if it has none.
    """
    return subprocess.Popen(
        [sys.executable, "-m", __name__, str(clock_ticks()), mark, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def main() -> None:
    since, mark, folder = sys.argv[1:]
    started = time.time()
    os.read(0, 1)
    time.sleep(_LEAVE_WITHIN)
    kill_leftover_processes(int(since), mark)
    remove_segments(abandoned_segments(started))
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
