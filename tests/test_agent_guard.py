"""Agents, and ranks that cannot notice that their driver was killed, end with it, and leave nothing behind."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = """
import os, signal, sys, tempfile
from ddpcheck.launchers.agent import Agent
scratch = tempfile.TemporaryDirectory(dir=sys.argv[1])
launched = Agent.start("an agent", [sys.executable, "-c", sys.argv[2]], {}, scratch=scratch, inherit_output=True)
os.write(1, b"%d\\n" % launched.guard.pid)
signal.pause()
"""
STUCK = """
import ctypes, os, subprocess
rank = subprocess.Popen(["sleep", "600"], start_new_session=True)
os.write(1, b"%d %d\\n" % (os.getpid(), rank.pid))
ctypes.PyDLL(None).pause()  # holds the interpreter's lock, as MPI_Init does
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes of an agent are found in /proc")
def test_ranks_that_hold_the_interpreters_lock_end_with_a_driver_that_is_killed(tmp_path: Path) -> None:
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path), STUCK], stdout=subprocess.PIPE)
    assert driver.stdout is not None
    with driver.stdout:
        numbers = [*driver.stdout.readline().split(), *driver.stdout.readline().split()]
    processes = [os.pidfd_open(int(number)) for number in numbers]
    assert list(tmp_path.iterdir())
    driver.kill()
    driver.wait(20)
    assert len(processes) == 3, "agent, rank and guard"
    for process in processes:
        assert select.select([process], [], [], 20.0)[0], "it still runs"  # readable once the process has ended
        os.close(process)
    assert not list(tmp_path.iterdir())
