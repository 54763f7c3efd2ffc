"""Processes that ranks leave behind are killed; those that the driver starts meanwhile are not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ddpcheck.launchers.orphaned_processes import clock_ticks, kill_leftover_processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="such processes are found in /proc")


@pytest.mark.parametrize(
    ("mode", "ends"), [(os.O_RDWR, True), (os.O_RDONLY, False)], ids=["a rank's fork", "a driver's"]
)
def test_only_who_has_a_ranks_file_open_for_writing_is_killed(tmp_path: Path, mode: int, ends: bool) -> None:
    """A child of the driver has the driver's files, which are only read, until it executes its program."""
    since = clock_ticks()
    file = os.open(tmp_path / "progress", mode | os.O_CREAT)
    child = subprocess.Popen(["sleep", "600"], pass_fds=[file])
    found = os.fstat(file)
    os.close(file)
    kill_leftover_processes(since, "", {(found.st_dev, found.st_ino)})
    status = child.poll()
    child.kill()
    child.wait(20)
    assert status == (-signal.SIGKILL if ends else None)
