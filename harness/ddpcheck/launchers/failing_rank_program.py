"""A test program in which one rank fails first and the others follow; shows which rank a launcher reports.

The program needs no package. The first rank prints an error, creates a marker file that it locks, and ends with status 3.
The system releases the lock when the rank ends, however long this takes. The others wait for the lock and a moment more,
print that they lost a rank, and end with status 1. Or the first is killed, and the others end with status 0.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from ..contract.rank_context import RANK_VARIABLES
from .launcher import Ending, Launched, Launcher

ROOT_CAUSE, CONSEQUENCE = "the root of it all", "it lost another rank"
ROOT_STATUS = 3

_PROGRAM = f"""
import fcntl, os, signal, sys, time
failing, mark, later, killed = int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
rank = next(int(os.environ[name]) for name in {RANK_VARIABLES!r} if name in os.environ)
if rank == failing:
    print(f"rank {{rank}}: {ROOT_CAUSE}", file=sys.stderr, flush=True)
    locked = open(mark + ".new", "w")
    fcntl.flock(locked, fcntl.LOCK_EX)
    os.rename(mark + ".new", mark)
    if killed:
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit({ROOT_STATUS})
until = time.monotonic() + 60
while not os.path.exists(mark) and time.monotonic() < until:
    time.sleep(0.01)
if os.path.exists(mark):
    with open(mark) as gone:
        fcntl.flock(gone, fcntl.LOCK_SH)
time.sleep(later)
print(f"rank {{rank}}: {CONSEQUENCE}", file=sys.stderr, flush=True)
os._exit(0 if killed else 1)
"""


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome of the run. status: wait()'s result, None if it did not return in time. ended: poll()'s result.

    known: ending_of() for the failed rank. output: the last lines that the ranks wrote.
    """

    failing: int
    status: int | None
    ended: Ending | None
    known: Ending | None
    output: str


def run_trial(
    launcher: Launcher, world_size: int, failing: int, within: float, later: float, *, killed: bool = False
) -> Trial:
    """Start the program on all ranks, and wait at most `within` seconds for its end. Other ranks fail `later` seconds
    later.

    killed: the first rank ends by SIGKILL, as if memory ran out, and the others with status 0.
    """
    with tempfile.TemporaryDirectory(prefix="ddpcheck-trial-") as folder:
        arguments = [str(failing), str(Path(folder) / "failed"), str(later), str(int(killed))]
        command = [sys.executable, "-S", "-E", "-c", _PROGRAM, *arguments]
        launched = launcher.start(command, world_size, {})
        try:
            status = _status(launched, within)
            return Trial(failing, status, launched.poll(), launched.ending_of(failing), launched.output())
        finally:
            launched.kill()


def _status(launched: Launched, within: float) -> int | None:
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(launched.wait()), daemon=True)
    waiting.start()
    waiting.join(within)
    return found[0] if found else None
