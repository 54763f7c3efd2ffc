"""Ranks forked from fork servers behave as freshly started ranks."""

from __future__ import annotations

import importlib.util
import os
import random
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ddpcheck import Adapter, Facets, Job, RankContext, Session, StartFailed
from ddpcheck.audit.recorded_process import RunSettings
from ddpcheck.contract import TYPICAL
from ddpcheck.job import AllReduce, Kill, TensorSpec
from ddpcheck.launchers import fork_servers as fork_servers_module
from ddpcheck.launchers.fork_servers import AUDIT_PROGRAM, RANK_PROGRAM, Forked, ForkServers
from ddpcheck.launchers.process_handles import open_process
from ddpcheck.launchers.processes import Processes
from ddpcheck.ranks.channel import Listener
from ddpcheck.running.adapter_lookup import known_adapters, resolve

HERE = Path(__file__)
SUM = Job(2, (AllReduce(TensorSpec((4,), "float64")),))


class Telling:
    """An all_reduce that returns facts about the process instead."""

    def all_reduce(self, array: np.ndarray, reduction: str, *, group: object = None) -> np.ndarray:
        del reduction, group
        drawn = np.random.random(), random.random()
        return np.array((hash("a word") % 2**40, *drawn, 0), array.dtype)


class Placed:
    """An all_reduce that returns the process's parent, its folder, whether it leads a session, and its scheduling
    policy.
    """

    def all_reduce(self, array: np.ndarray, reduction: str, *, group: object = None) -> np.ndarray:
        del reduction, group
        here = Path.cwd().stat().st_ino
        there = here if str(Path.cwd()) in sys.path else -1
        return np.array((os.getppid(), there, os.getsid(0) == os.getpid(), os.sched_getscheduler(0)), array.dtype)


def _facets(context: RankContext, collectives: Any) -> Facets:
    return Facets(rank=context.rank, world_size=context.world_size, collectives=collectives)


_PROMISES = TYPICAL.of_facets("collectives").but(operations=frozenset({"all_reduce"}))
telling = Adapter("telling", lambda context: _facets(context, Telling()), _PROMISES)
placed = Adapter("placed", lambda context: _facets(context, Placed()), _PROMISES)
elsewhere = Adapter("elsewhere", placed.connect, _PROMISES, launcher=Processes(preload=("colorsys",)))
threaded = Adapter("threaded", placed.connect, _PROMISES, launcher=Processes(preload=("one_more_thread",)))


@pytest.fixture(scope="module")
def fork_servers() -> Iterator[ForkServers]:
    with ForkServers() as found:
        yield found


def told(name: str, fork_servers: ForkServers | None) -> tuple[list[list[float]], list[int]]:
    with Session(f"{HERE}:{name}", 2, fork_servers=fork_servers) as session:
        trace = session.run(SUM)
        return [list(rank.records[0].values["result"]) for rank in trace.ranks], session.pids


def test_each_start_forks_fresh_ranks_that_hash_and_draw_as_fresh_interpreters_do(
    fork_servers: ForkServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)  # tox sets it
    (first, pids), (second, others), (fresh, _) = (told("telling", way) for way in (fork_servers, fork_servers, None))
    assert not set(pids) & set(others)
    hashes = [[rank[0] for rank in ranks] for ranks in (first, second, fresh)]
    assert hashes[0] == hashes[1] == hashes[2]
    assert hashes[0][0] != hashes[0][1]
    for position in (1, 2):  # NumPy's global generator, and Python's
        assert len({rank[position] for ranks in (first, second) for rank in ranks}) == 4
    for pid in (*pids, *others):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_forked_rank_is_where_the_driver_is_now(
    fork_servers: ForkServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, _ = told("placed", fork_servers)
    monkeypatch.chdir(tmp_path)
    after, _ = told("placed", fork_servers)
    parents = [[rank[0] for rank in ranks] for ranks in (before, after)]
    assert parents[0] == parents[1]  # the same two fork servers
    assert os.getpid() not in parents[0]
    assert [rank[1] for rank in after] == [tmp_path.stat().st_ino] * 2
    assert [rank[2] for rank in after] == [1, 1]


def test_forked_ranks_do_not_interrupt_one_another(fork_servers: ForkServers) -> None:
    """Ranks of a benchmark, which are started as a user starts them, have the driver's scheduling policy."""
    (forked, _), (fresh, _) = (told("placed", way) for way in (fork_servers, None))
    assert [[rank[3] for rank in ranks] for ranks in (forked, fresh)] == [
        [os.SCHED_BATCH] * 2,
        [os.sched_getscheduler(0)] * 2,
    ]


@pytest.fixture
def one_more_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of this name starts a thread."""
    tmp_path.joinpath("one_more_thread.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


def test_ranks_start_in_the_usual_way_where_a_fork_would_be_unsafe(one_more_thread: None) -> None:
    with ForkServers() as fork_servers:
        ranks, _ = told("threaded", fork_servers)
    assert [rank[0] for rank in ranks] == [os.getpid()] * 2


@pytest.mark.parametrize("other", ["elsewhere", "threaded"])
def test_ranks_that_run_are_left_alone_by_those_that_start_from_other_fork_servers(
    other: str, fork_servers: ForkServers, one_more_thread: None
) -> None:
    listener = Listener()  # it accepts no client, so the ranks wait
    variables = {"DDPCHECK_CONTROL": listener.address, "DDPCHECK_SECRET": listener.secret, "OPENBLAS_NUM_THREADS": "1"}
    running = Processes(fork_servers=fork_servers).start([*RANK_PROGRAM, f"{HERE}:telling"], 2, variables)
    try:
        assert all(isinstance(child, Forked) for child in vars(running)["children"])
        told(other, fork_servers)
        assert running.poll() is None
    finally:
        running.kill()
        listener.close()


def test_another_environment_and_a_lost_template_get_fresh_ones(
    fork_servers: ForkServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, _ = told("placed", fork_servers)
    monkeypatch.setenv("READ_AT_IMPORT", "1")
    other, _ = told("placed", fork_servers)
    assert {rank[0] for rank in usual}.isdisjoint(rank[0] for rank in other)
    for rank in other:
        os.kill(int(rank[0]), signal.SIGKILL)
    told("placed", fork_servers)  # from new fork servers, or without them
    again, _ = told("placed", fork_servers)
    assert os.getpid() not in [rank[0] for rank in again]


def test_a_template_that_is_stopped_is_killed_and_said(capfd: pytest.CaptureFixture[str]) -> None:
    with ForkServers() as own:
        usual, _ = told("placed", own)
        parents = sorted({int(rank[0]) for rank in usual})
        os.kill(parents[0], signal.SIGSTOP)
        again, _ = told("placed", own)
    assert [rank[0] for rank in again] == [os.getpid()] * 2
    assert f"the fork server {parents[0]} is stopped: it was killed" in capfd.readouterr().err


@pytest.mark.parametrize("room", [0, 1])
def test_no_room_for_the_descriptors_of_a_rank_is_said_and_the_rank_ends(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive = socket.recv_fds
    handles: list[int] = []

    def with_little_room(*args: Any) -> Any:
        said, files, *rest = receive(*args)
        handles.append(os.dup(files[0]))
        for file in files[room:]:
            os.close(file)
        return said, files[:room], *rest

    with ForkServers() as own:
        monkeypatch.setattr(socket, "recv_fds", with_little_room)
        with (
            pytest.raises(StartFailed, match="Too many open files"),
            Session(f"{HERE}:placed", 2, fork_servers=own) as session,
        ):
            session.run(SUM)
    assert len(handles) == 2
    for handle in handles:
        assert select.select([handle], [], [], 20.0)[0]
        os.close(handle)


def test_ranks_end_though_the_process_that_forked_them_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_LEAVE_WITHIN", "_TELL_WITHIN"):
        monkeypatch.setattr(fork_servers_module, name, 0.01)
    with ForkServers() as own, Session(f"{HERE}:placed", 2, fork_servers=own) as session:
        parents = {int(rank.records[0].values["result"][0]) for rank in session.run(SUM).ranks}
        for parent in parents:
            os.kill(parent, signal.SIGSTOP)
        session.close()
    assert not [parent for parent in parents if Path(f"/proc/{parent}").exists()]


def test_how_a_forked_rank_ended_is_known(fork_servers: ForkServers) -> None:
    with Session(f"{HERE}:telling", 2, fork_servers=fork_servers, grace=0.2) as session:
        trace = session.run(Job(2, (Kill(1),)))
        assert trace.ranks[1].outcome == "died"
        assert "rank 1 was killed by SIGKILL" in trace.ranks[1].error
        assert session.run(SUM).completed


def test_even_ranks_are_forked_from_one_template_and_odd_ones_from_another() -> None:
    before = _children()
    with ForkServers() as own, Session(f"{HERE}:placed", 4, fork_servers=own) as session:
        parents = [rank.records[0].values["result"][0] for rank in session.run(Job(4, SUM.operations)).ranks]
        assert len(_children() - before) == 2
    assert parents[0] == parents[2] != parents[1] == parents[3]
    assert _children() <= before


def _children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split())


MODULES = ("colorsys", "code", "cmd", "symtable", "calendar", "bisect", "fnmatch", "graphlib", "netrc", "sched")


def other_adapters(own: ForkServers) -> None:
    """Judge ten adapters, one after the other, each with a fork server of its own."""
    for module in MODULES:
        launcher = Processes(preload=(module,))
        with Session(f"{HERE}:placed", 1, launcher=launcher, fork_servers=own) as session:
            assert session.run(Job(1, SUM.operations)).completed


def test_ten_adapters_one_after_the_other_leave_few_fork_servers() -> None:
    before = _children()
    with ForkServers() as own:
        other_adapters(own)
        assert len(_children() - before) == fork_servers_module._KEPT < len(MODULES)
    assert _children() <= before


def test_fork_servers_of_ranks_that_run_stay() -> None:
    with ForkServers() as own, Session(f"{HERE}:placed", 2, fork_servers=own) as session:
        parents = {int(rank.records[0].values["result"][0]) for rank in session.run(SUM).ranks}
        other_adapters(own)
        assert {str(parent) for parent in parents} <= _children()
        assert session.run(SUM).completed
        session.close()
        other_adapters(own)
        assert not {str(parent) for parent in parents} & _children()


LEAVES = """
import os, sys
sys.path.insert(0, sys.argv[1])
import test_fork_servers as tests
own = tests.ForkServers()
tests.other_adapters(own)
print(*tests._children(), flush=True)
os._exit(0)
"""


def test_no_fork_server_outlives_the_driver() -> None:
    left = subprocess.run(
        [sys.executable, "-c", LEAVES, HERE.parent], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.split()
    assert len(left) == fork_servers_module._KEPT
    for process in map(int, left):
        handle = open_process(process)
        if handle is not None:
            assert select.select([handle], [], [], 60.0)[0]
            os.close(handle)


def test_closing_ends_the_fork_servers(fork_servers: ForkServers) -> None:
    del fork_servers
    with ForkServers() as own:
        ranks, _ = told("placed", own)
    for rank in ranks:
        with pytest.raises(ProcessLookupError):
            os.kill(int(rank[0]), 0)


def test_modules_that_the_numpy_references_preload_exist() -> None:
    launchers = [
        resolve(full)[0].launcher for name, full in known_adapters().items() if name.startswith("numpy_sockets")
    ]
    preloads = {name for each in launchers if isinstance(each, Processes) for name in each.preload}
    assert preloads
    assert {name for name in preloads if importlib.util.find_spec(name) is None} == set()


def test_a_process_of_an_audit_ends_with_its_fork_server(tmp_path: Path) -> None:
    """Its settings name the driver as its parent."""
    pytest.importorskip("torch")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "real").mkdir()
    script = tmp_path / "endless.py"
    script.write_text("open('fifo', 'w').close()\nwhile True:\n    pass\n".replace("fifo", str(tmp_path / "fifo")))
    settings = {**RunSettings(str(tmp_path), "real", 1, 0, 1).variables(), "OMP_NUM_THREADS": "1"}
    with ForkServers() as own:
        launcher = Processes(fork_servers=own)
        running = launcher.start([*AUDIT_PROGRAM, str(script)], 1, {**launcher.parent(), **settings})
        (child,) = vars(running)["children"]
        assert isinstance(child, Forked)
        assert (tmp_path / "fifo").read_text() == ""  # after the script's first line
        assert child.poll() is None
    try:
        assert child.wait() == -signal.SIGKILL
    finally:
        running.kill()
