"""Sessions: ranks are started once and reused, and every failure is an outcome that names the rank."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sessions

from ddpcheck import Job, Session, StartFailed, Trace, assertions
from ddpcheck.causes import Cause, ranks
from ddpcheck.job import AllReduce, Barrier, Kill, Operation, Raise, Rounds, Sleep, TensorSpec
from ddpcheck.launchers.attached import Attached
from ddpcheck.launchers.fork_servers import ForkServers
from ddpcheck.launchers.processes import Processes
from ddpcheck.launchers.torchrun import Torchrun
from ddpcheck.ranks import hang_detection
from ddpcheck.ranks.attaching import merge_ranks
from ddpcheck.ranks.channel import Listener
from ddpcheck.ranks.channel import connect as attach
from ddpcheck.ranks.rank_link import RankLink
from ddpcheck.verdict import Finding

HERE = Path(__file__).parent
MISBEHAVING = f"{HERE / 'misbehaving.py'}:adapter"
QUICK = {"deadline": 1.0, "grace": 0.3}


def reduce_by(op: str, world_size: int = 2) -> Job:
    return Job(world_size, (AllReduce(TensorSpec((3,)), op),))


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(MISBEHAVING, 2, **QUICK) as running:
        yield running


def text_of(trace: Trace) -> str:
    with pytest.raises(Finding) as caught:
        assertions.completed(trace)
    return str(caught.value)


def test_ranks_are_started_once_and_reused(session: Session) -> None:
    traces = list(session.run_many([reduce_by("sum")] * 200))
    assert all(trace.completed for trace in traces)
    assert session.starts == 1
    assert session.jobs_run == 200


def test_every_rank_gets_its_own_values(session: Session) -> None:
    first, second = session.run(reduce_by("sum")).values(0, "result")
    assert first.tobytes() != second.tobytes()


def test_a_trace_survives_a_file(session: Session, tmp_path: Path) -> None:
    trace = session.run(reduce_by("sum"))
    trace.save(tmp_path / "trace.ddp")
    again = Trace.load(tmp_path / "trace.ddp")
    assert [r.outcome for r in again.ranks] == ["done", "done"]
    assert again.values(0, "result")[1].tobytes() == trace.values(0, "result")[1].tobytes()


def test_a_job_survives_a_file() -> None:
    job = Job(3, (AllReduce(TensorSpec((2, 0)), "max", (0, 2)), Sleep(1, 0.5), Kill(2), Barrier()))
    assert Job.from_plain(json.loads(json.dumps(job.to_plain()))) == job


def test_a_hung_rank_is_named_with_its_stack(session: Session) -> None:
    trace = session.run(reduce_by("max"))
    assert [rank.outcome for rank in trace.ranks] == ["done", "hung"]
    text = text_of(trace)
    assert text.startswith("rank 1 hung in operation 0 (all_reduce) for more than 1 s")
    assert "wait_for_ever" in text
    first, *_ = trace.ranks[1].stack.splitlines()
    assert re.search(r"ddpcheck/execution/collectives.py., line \d+, in all_reduce$", first)  # nothing above it
    assert "Rank 0 left a collective early" in text


@pytest.mark.parametrize(
    ("op", "cause"), [("sum", ranks.STILL_EXCHANGES_MESSAGES(ranks=(0, 1))), ("max", ranks.ALL_WAIT_IN_ONE_OPERATION())]
)
def test_ranks_that_still_exchange_messages_after_the_deadline_are_in_no_deadlock(op: str, cause: Cause) -> None:
    with (
        Session(MISBEHAVING.replace(":adapter", ":exchanging"), 2, **QUICK) as running,
        pytest.raises(Finding) as found,
    ):
        assertions.completed(running.run(reduce_by(op)))
    assert found.value.diagnosis.causes == (cause,)


def test_slow_rank_with_progress_is_not_hung(session: Session) -> None:
    """Two operations together take longer than the deadline."""
    assertions.completed(session.run(Job(2, (Sleep(0, 0.6), Sleep(0, 0.6)))))


def test_many_calls_in_one_operation_may_take_long(session: Session) -> None:
    assertions.completed(session.run(Job(2, (Rounds((Sleep(0, 0.3),), times=2, rounds=2),))))


@pytest.mark.parametrize(("patience", "outcome"), [(60.0, "done"), (0.0, "hung")])
def test_rank_that_imports_a_module_is_not_hung(patience: float, outcome: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hang_detection, "_EXCUSED_SECONDS", patience)
    with Session(MISBEHAVING.replace(":adapter", ":importing"), 2, deadline=0.5) as running:
        assert {rank.outcome for rank in running.run(reduce_by("sum")).ranks} == {outcome}


@pytest.mark.parametrize(("share", "outcome"), [(1.0, "done"), (0.75, "done"), (0.5, "hung")])
def test_rank_without_processor_time_is_not_hung(share: float, outcome: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the time is the cost of busy waiting on too few processors, and does not extend the deadline."""
    monkeypatch.setattr(RankLink, "queued", lambda _: {1: share * time.monotonic()})
    with Session(MISBEHAVING, 2, deadline=0.5) as running:
        running.start()
        assert {rank.outcome for rank in running.run(Job(2, (Sleep(0, 1.2), Sleep(1, 1.2)))).ranks} == {outcome}


def test_stopped_process_differs_from_waiting_process(session: Session) -> None:
    trace = session.run(reduce_by("min"))
    assert trace.ranks[1].outcome == "hung"
    assert "does not answer" in trace.ranks[1].stack
    assert trace.ranks[1].last is not None
    assert trace.ranks[1].last.kind == "all_reduce"


def test_a_crash_is_named_with_signal_operation_and_stack(session: Session) -> None:
    trace = session.run(reduce_by("prod"))
    text = text_of(trace)
    assert text.startswith("rank 1 died in operation 0 (all_reduce): rank 1 was killed by SIGSEGV")
    assert "string_at" in text


def test_killed_rank_is_distinguished_from_the_others(session: Session) -> None:
    trace = session.run(Job(2, (AllReduce(TensorSpec(())), Kill(1))))
    assert "rank 1 died in operation 1 (kill): rank 1 was killed by SIGKILL" in text_of(trace)


def test_an_exception_on_one_rank_is_its_own(session: Session) -> None:
    trace = session.run(Job(2, (Raise(0, "out of memory"), AllReduce(TensorSpec((2,))))))
    assert [rank.outcome for rank in trace.ranks] == ["raised", "done"]
    assert text_of(trace).startswith("rank 0 raised an error in operation 0 (raise): RuntimeError: out of memory")


def test_broken_contract_is_reported(session: Session) -> None:
    trace = session.run(reduce_by("mean"))
    assert "all_reduce() must return a NumPy array, got str" in text_of(trace)


def test_after_a_failure_fresh_ranks_run_the_next_job(session: Session) -> None:
    jobs = [reduce_by(op) for op in ("sum", "max", "sum", "prod", "sum")]
    assert [trace.completed for trace in session.run_many(jobs)] == [True, False, True, False, True]
    assert session.starts == 3


def test_abandoned_jobs_do_not_disturb_the_next(session: Session) -> None:
    traces = session.run_many([reduce_by("sum")] * 20)
    next(traces)
    traces.close()
    job = Job(2, (AllReduce(TensorSpec((1,), seed=5)),))
    assert session.run(job).values(0, "result")[0] == job.operations[0].tensor.on(0)


def test_abandoned_hanging_job_costs_no_deadline() -> None:
    with Session(MISBEHAVING, 2, deadline=1000.0, grace=0.3) as session:
        traces = session.run_many([reduce_by("sum"), Job(2, (Sleep(0, 2000.0),))])
        assert next(traces).completed
        traces.close()
        assert session.run(reduce_by("sum")).completed


def test_concurrent_use_of_a_session_is_an_error(session: Session) -> None:
    traces = session.run_many([reduce_by("sum")] * 2)
    next(traces)
    with pytest.raises(RuntimeError, match="has not ended"):
        session.run(reduce_by("sum"))
    traces.close()
    assert session.run(reduce_by("sum")).completed


def test_rank_that_exits_is_reported_with_its_line() -> None:
    with sessions.session(f"{HERE / 'misbehaving.py'}:leaving", 2) as session:
        trace = session.run(reduce_by("sum"))
    assert [rank.outcome for rank in trace.ranks] == ["died", "died"]
    text = text_of(trace)
    assert re.match(r"rank [01] died in operation 0 \(all_reduce\): SystemExit: 0\n", text)
    assert "sys.exit(0)" in text


@pytest.mark.parametrize(
    ("attribute", "says"),
    [
        ("world_of_one", "launched as 2 ranks, but the implementation sees a world of 1"),
        ("raising", "rank 1: RuntimeError: no network card"),
        ("exiting", "rank 1 exited with status 3 in connect()"),
        ("hanging", "rank 1 did not return from connect()"),
    ],
)
def test_ranks_that_do_not_start_say_why(attribute: str, says: str) -> None:
    patience = 3.0 if attribute == "hanging" else 60.0
    session = sessions.session(f"{HERE / 'misbehaving.py'}:{attribute}", 2, start_deadline=patience, grace=0.3)
    with pytest.raises(StartFailed, match=says.replace("(", r"\(").replace(")", r"\)")):
        session.start()
    assert session.pids == []


def test_rank_stopped_in_connect_is_reported_at_once() -> None:
    session = sessions.session(f"{HERE / 'misbehaving.py'}:stopping", 2, start_deadline=10_000.0)
    with pytest.raises(StartFailed) as caught:
        session.start()
    assert caught.value.stuck
    assert "it does not answer: it is stopped" in caught.value.words[0]


def test_rank_stopped_before_attaching_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    started = Processes.start

    def stopped(launcher: Processes, *arguments: Any, **options: Any) -> Any:
        ranks = started(launcher, *arguments, **options)
        os.kill(vars(ranks)["children"][1].pid, signal.SIGSTOP)
        return ranks

    monkeypatch.setattr(Processes, "start", stopped)
    with pytest.raises(StartFailed, match="rank 1 is stopped by a signal before it reached the harness"):
        Session(MISBEHAVING, 2, start_deadline=10_000.0).start()


def test_rank_stuck_in_connect_is_reported_before_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddpcheck.ranks.attaching._STUCK_SECONDS", 0.5)
    session = sessions.session(f"{HERE / 'misbehaving.py'}:hanging", 2, start_deadline=120.0)
    with pytest.raises(StartFailed) as caught:
        session.start()
    assert caught.value.stuck
    (stack,) = caught.value.words
    assert re.match(
        r"rank 1 stands at:\n  File .*misbehaving.py., line \d+, in connect_hangs\n", stack
    )  # nothing above it


def test_equal_messages_of_ranks_are_shown_once() -> None:
    texts = ["rank 1: no card", "rank 0: no card", "rank 2: no cable", "the launcher ended"]
    assert merge_ranks(texts) == ["ranks 0, 1: no card", "rank 2: no cable", "the launcher ended"]


def test_a_stranger_cannot_attach() -> None:
    listener = Listener("127.0.0.1")
    host, port = listener.address.split(":")[1:]
    with socket.create_connection((host, int(port))) as stranger:
        stranger.sendall(b"\x80\x04" * 64)
        assert listener.accept(5.0) is None
    listener.close()


def test_a_wrong_secret_is_refused() -> None:
    listener = Listener("127.0.0.1")
    code = f"from ddpcheck.ranks.channel import connect\nconnect({listener.address!r}, 'wrong')"
    rank = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    assert listener.accept(20.0) is None
    assert "does not accept this secret" in rank.communicate(timeout=20)[1]
    listener.close()


def test_a_bad_control_address_is_told() -> None:
    with pytest.raises(ValueError, match="must be unix:NAME or tcp:HOST:PORT"):
        attach("pipe:1", "secret")


DRIVER = """
import signal, sys
from ddpcheck import Job, Session
from ddpcheck.job import AllReduce, TensorSpec
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
session = Session({reference!r}, 2, deadline=60)
session.start()
theirs = session.run(Job(2, (AllReduce(TensorSpec((1,), "int64")),))).values(0, "result") if {forks} else []
print(*session.pids, *(int(number[0]) for number in theirs), flush=True)
session.run(Job(2, (AllReduce(TensorSpec((3,)), "max"),)))
signal.pause()
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="pidfd_open is there on Linux only")
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", ["adapter", "forking"])
def test_no_rank_outlives_the_driver(name: str, ending: signal.Signals) -> None:
    """Nor do processes that a rank has started."""
    reference, forks = f"{HERE / 'misbehaving.py'}:{name}", name == "forking"
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER.format(reference=reference, forks=forks)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert driver.stdout is not None
    with driver.stdout:
        ranks = [os.pidfd_open(int(pid)) for pid in driver.stdout.readline().split()]
    assert len(ranks) == (4 if forks else 2)
    driver.send_signal(ending)
    driver.wait(20)
    for rank in ranks:
        readable, _, _ = select.select([rank], [], [], 20.0)  # a pidfd is readable once the process has ended
        os.close(rank)
        assert readable, "a rank was left behind"


@pytest.mark.parametrize("last", [AllReduce(TensorSpec((1,), "int64")), Kill(1)], ids=["orderly", "killed"])
@pytest.mark.parametrize("forked", [False, True])
def test_what_a_rank_has_started_ends_with_it(last: Operation, forked: bool) -> None:
    with contextlib.ExitStack() as stack:
        fork_servers = stack.enter_context(ForkServers()) if forked else None
        with Session(f"{HERE / 'misbehaving.py'}:forking", 2, fork_servers=fork_servers, **QUICK) as session:
            told = session.run(Job(2, (AllReduce(TensorSpec((1,), "int64")),))).values(0, "result")
            theirs = [os.pidfd_open(int(number[0])) for number in told]
            session.run(Job(2, (last,)))
        try:
            for process in theirs:
                assert select.select([process], [], [], 10)[0], "a process that a rank had started still runs"
        finally:
            for process in theirs:
                os.close(process)


@pytest.mark.parametrize("last", [AllReduce(TensorSpec((2,), "int64")), Kill(1)], ids=["orderly", "killed"])
@pytest.mark.parametrize("forked", [False, True])
def test_daemons_of_a_rank_end_with_it(last: Operation, forked: bool) -> None:
    with contextlib.ExitStack() as stack:
        fork_servers = stack.enter_context(ForkServers()) if forked else None
        with Session(f"{HERE / 'misbehaving.py'}:with_daemons", 2, fork_servers=fork_servers, **QUICK) as session:
            told = session.run(Job(2, (AllReduce(TensorSpec((2,), "int64")),))).values(0, "result")
            theirs = [os.pidfd_open(int(number)) for rank in told for number in rank]
            session.run(Job(2, (last,)))
        for process in theirs:
            stack.callback(os.close, process)
        for process in theirs:
            assert select.select([process], [], [], 10)[0], "a daemon still runs"


def test_ranks_that_a_user_started_attach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDPCHECK_SECRET", "agreed-beforehand")
    started: list[subprocess.Popen[bytes]] = []

    def start_by_hand(text: str) -> None:
        settings = dict(word.split("=", 1) for word in text.splitlines()[1].split() if word.startswith("DDPCHECK"))
        for rank in range(2):
            env = os.environ | settings | {"RANK": str(rank), "WORLD_SIZE": "2"}
            started.append(subprocess.Popen([sys.executable, "-m", "ddpcheck.worker", MISBEHAVING], env=env))

    with Session(MISBEHAVING, 2, launcher=Attached("127.0.0.1", announce=start_by_hand), **QUICK) as session:
        assert session.run(reduce_by("sum")).completed
        assert not session.run(reduce_by("max")).completed
        with pytest.raises(StartFailed, match="cannot be started again"):
            session.run(reduce_by("sum"))
    for process in started:
        process.wait(20)


def test_torchrun_starts_ranks() -> None:
    if reason := Torchrun().unavailable():
        pytest.skip(reason)
    with Session(MISBEHAVING, 2, launcher=Torchrun(), deadline=20.0) as session:
        assert session.run(reduce_by("sum")).completed


def test_a_session_leaves_no_descriptor_behind() -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    with Session(MISBEHAVING, 2, **QUICK) as warm:
        warm.start()
    before = open_files()
    with Session(MISBEHAVING, 2, **QUICK) as session:
        session.run(reduce_by("sum"))
        session.run(reduce_by("prod"))
    assert open_files() == before


def test_a_job_for_another_world_is_refused(session: Session) -> None:
    with pytest.raises(ValueError, match="cannot run on a Session of 2"):
        session.run(reduce_by("sum", 3))


def test_operations_that_do_not_fit_are_told_all_at_once() -> None:
    with pytest.raises(ValueError, match=r"operation 0 \(kill\): rank 5 .*; operation 1 \(all_reduce\): group"):
        Job(2, (Kill(5), AllReduce(TensorSpec((1,)), group=(1, 0))))
