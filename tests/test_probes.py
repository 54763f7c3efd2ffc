"""Operations on some ranks only, ends of programs, bytes on the wire, and tests of launchers."""

from __future__ import annotations

import socket
from operator import sub

import pytest

from ddpcheck import Job, Session
from ddpcheck.checks import law
from ddpcheck.execution.sent_bytes import sent_by_connection
from ddpcheck.job import AllReduce, Attempt, Barrier, Close, Kill, Raise, TensorSpec
from ddpcheck.launchers.failing_rank_program import CONSEQUENCE, ROOT_CAUSE, ROOT_STATUS, run_trial
from ddpcheck.launchers.processes import Processes
from ddpcheck.operations.probes import Leave, OnRanks, Sent
from ddpcheck.running.check_runner import run_check
from ddpcheck.verdict import CannotTell
from ddpcheck_properties.wire.counts import by_itself, by_kernel

SMALL = TensorSpec((3,), "float32")


def test_operations_of_some_ranks_are_files_too() -> None:
    job = Job(3, (OnRanks((0, 2), AllReduce(SMALL, group=(0, 2))), Leave(1, close=True), Sent()))
    assert Job.from_plain(job.to_plain()) == job


@pytest.mark.parametrize(
    ("operation", "says"),
    [
        (OnRanks((0, 2), Barrier()), "ranks [2] are not in range(2)"),
        (OnRanks((0,), AllReduce(SMALL, group=(3,))), "group (3,)"),
        (Leave(2), "rank 2 is not in range(2)"),
        (Attempt(Leave(2)), "rank 2 is not in range(2)"),
    ],
)
def test_what_cannot_run_is_told(operation: OnRanks | Leave | Attempt, says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("(", r"\(").replace(")", r"\)").replace("[", r"\[")):
        Job(2, (operation,))


def test_only_the_named_ranks_enter() -> None:
    with Session("numpy_sockets", 3) as session:
        trace = session.run(Job(3, (OnRanks((0, 2), AllReduce(SMALL, group=(0, 2))), Barrier())))
    assert trace.completed
    assert [sorted(rank.values(0)) for rank in trace.ranks][1] == []
    assert (trace.ranks[0].values(0)["result"] == SMALL.on(0) + SMALL.on(2)).all()


def test_an_error_that_is_caught_is_told_and_the_program_goes_on() -> None:
    with Session("numpy_sockets", 2) as session:
        trace = session.run(Job(2, (Attempt(Raise(1)), Attempt(Barrier()), Barrier())))
    assert trace.completed
    assert trace.values(0, "error") == ["", "RuntimeError: raised on purpose by the Job"]
    assert trace.values(1, "error") == ["", ""]


def test_close_after_a_death_has_the_whole_deadline() -> None:
    with Session("ddpcheck_implementations.faulty.lifecycle.after_death:Lingers", 2, grace=0.2) as session:
        trace = session.run(Job(2, (Kill(1), Attempt(AllReduce(SMALL)), Close())))
        session.close(orderly=False)
    assert [rank.outcome for rank in trace.ranks] == ["done", "died"]


@pytest.mark.parametrize("close", [True, False])
def test_a_program_that_ends_is_a_rank_that_died(close: bool) -> None:
    with Session("numpy_sockets", 2) as session:
        trace = session.run(Job(2, (Barrier(), Leave(0, close=close), Barrier())))
        assert [rank.outcome for rank in trace.ranks] == ["died", "raised"]
        assert session.run(Job(2, (Barrier(),))).completed


def test_bytes_are_counted_as_they_are_handed_over() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with socket.create_connection(listener.getsockname()) as one, listener.accept()[0] as other:
            before = sent_by_connection()
            one.sendall(bytes(1000))
            other.sendall(bytes(10))
            after = sent_by_connection()
    grown = [tuple(map(sub, after[name], before.get(name, (0, 0)))) for name in after]
    assert sorted(counts for counts in grown if any(counts)) == [(10, 1), (1000, 1)]


def test_the_reference_counts_the_same_bytes_as_the_kernel() -> None:
    large = TensorSpec((30_000,), "float32")
    with Session("ddpcheck_implementations.numpy_sockets:tcp", 2) as session:
        trace = session.run(Job(2, (Sent(), AllReduce(large), Sent())))
    header = 32
    assert by_kernel(trace).bytes == by_itself(trace).bytes == [[120_000 + header], [120_000 + header]]


def test_a_check_that_cannot_see_is_skipped_with_its_reason() -> None:
    @law("test")
    def check_something(session: Session) -> None:
        """Something holds."""
        raise CannotTell("nothing was seen")

    with Session("numpy_sockets", 1) as session:
        verdict = run_check(session, check_something.check)  # type: ignore[attr-defined]  # which law() has set
    assert (verdict.status, verdict.reason) == ("skipped", "nothing was seen")


@pytest.mark.parametrize("failing", [0, 2])
def test_processes_report_the_rank_that_failed_first(failing: int) -> None:
    trial = run_trial(Processes(), 3, failing, within=30.0, later=1.0)
    assert trial.status == ROOT_STATUS
    assert trial.ended == f"rank {failing} exited with status {ROOT_STATUS}"
    assert f"rank {failing}: {ROOT_CAUSE}" in trial.output
    assert CONSEQUENCE in trial.output
