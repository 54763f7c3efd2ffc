"""Start conditions: ranks start as a Start describes, and causes are distinguished."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest
import sessions

from ddpcheck import Adapter, Finding, Job, RankTrace, Trace, run_checks
from ddpcheck.contract import TYPICAL
from ddpcheck.contract.rank_context import rank_context
from ddpcheck.execution.short_reads import reads_are_short, restore_reads, shorten_reads
from ddpcheck.job import AllGather, Barrier, Operation, ShortReads, Start, TensorSpec
from ddpcheck.launchers.attached import Attached
from ddpcheck.ranks.foreign_clients import ForeignClients, address_of, listening_addresses
from ddpcheck.ranks.simulated_hosts import set_simulated_hosts
from ddpcheck.running.check_runner import Settings
from ddpcheck.storage.replay import described
from ddpcheck.trace import StartReport
from ddpcheck_implementations.faulty import PlainReplica
from ddpcheck_implementations.faulty.base import PROMISED, _Connect
from ddpcheck_implementations.faulty.collectives import collectives
from ddpcheck_implementations.numpy_sockets import adapter as in_memory
from ddpcheck_implementations.numpy_sockets import tcp as sockets
from ddpcheck_implementations.numpy_sockets import unix
from ddpcheck_properties.collectives import groups
from ddpcheck_properties.lifecycle import rendezvous

HERE = Path(__file__).parent
replicas = Adapter("replicas only", _Connect(PlainReplica), PROMISED)
unpromised = replace(sockets, capabilities=TYPICAL.of_facets(*frozenset()))


def test_a_start_goes_through_json_and_is_shown_by_replay() -> None:
    job = Job(3, (Barrier(),), start=Start((2, 0, 1), short_reads=True))
    assert Job.from_plain(job.to_plain()) == job
    with sessions.session(sockets, 3) as session:
        lines = list(described(job, session.run(job)))
    assert lines[0] == (
        "started afresh: ranks 2, 0, 1 enter connect() in this order, one after the other; reads and sends are cut short"
    )


def test_an_order_that_is_none_of_the_ranks_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the order \(0, 0\) is not an order of 2 ranks"):
        Job(2, (), start=Start((0, 0)))


def test_hosts_that_do_not_hold_the_ranks_are_refused() -> None:
    for hosts in ((1,), (2, 0)):
        with pytest.raises(ValueError, match="do not add up to 2"):
            Job(2, (), start=Start(hosts=hosts))


def test_ranks_are_told_of_hosts_in_the_names_of_their_launcher_and_of_torchrun() -> None:
    variables = {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "2", "MPI_LOCALNRANKS": "4"}
    set_simulated_hosts(variables, (1, 3))
    told = rank_context(variables)
    assert (told.rank, told.world_size, told.local_rank, told.local_world_size) == (2, 4, 1, 3)
    assert (variables["LOCAL_RANK"], variables["LOCAL_WORLD_SIZE"], variables["GROUP_RANK"]) == ("1", "3", "1")


def test_jobs_before_and_after_a_start_keep_their_places() -> None:
    jobs = [Job(2, (AllGather(TensorSpec((2,), seed=seed)),)) for seed in range(4)]
    jobs[2] = replace(jobs[2], start=Start())
    with sessions.session(sockets, 2) as session:
        traces = list(session.run_many(jobs))
        assert session.starts == 2
    for job, trace in zip(jobs, traces, strict=True):
        rendezvous.results_hold(job, trace)


def test_a_world_meets_where_the_one_before_was_killed() -> None:
    with sessions.session(sockets, 2) as session:
        session.start()
        before = set(session.pids)
        assert session.run(Job(2, (Barrier(),), start=Start(in_place=True))).completed
        assert not before & set(session.pids)


def test_reads_are_cut_short_until_the_end_of_the_job() -> None:
    operations: tuple[Operation, ...] = (ShortReads(), AllGather(TensorSpec((50,))), ShortReads(on=False))
    with sessions.session(sockets, 2) as session:
        trace = session.run(Job(2, operations))
        more = session.run(Job(2, (Barrier(), ShortReads(on=False))))
    cut = trace.values(2, "reads")
    assert min(cut) > 0
    assert more.values(1, "reads") == cut


@pytest.mark.parametrize("adapter", [in_memory, sockets, unix], ids=lambda adapter: adapter.name)
def test_ranks_meet_though_their_first_words_come_in_pieces(adapter: Adapter) -> None:
    operations: tuple[Operation, ...] = (AllGather(TensorSpec((50,))), Barrier())
    with sessions.session(adapter, 2) as session:
        assert session.run(Job(2, operations, start=Start(short_reads=True))).completed


def test_every_way_to_read_a_socket_is_cut_short() -> None:
    left, right = socket.socketpair()
    room = bytearray(8)
    try:
        shorten_reads()
        before = reads_are_short()
        left.sendall(b"0123456789" * 4)
        got = right.recv(8) + right.recvmsg(8)[0]
        assert 0 < len(got) < 16
        assert 0 < right.recv_into(room) < 8
        assert 0 < right.recvmsg_into([bytearray(0), memoryview(room)[:3], memoryview(room)[3:]])[0] < 8
        assert reads_are_short() == before + 4
        assert len(right.recv(4, socket.MSG_PEEK)) == 4
    finally:
        restore_reads()
        left.close()
        right.close()
    assert socket.socket.recv.__qualname__ == "socket.recv"


def test_foreign_clients_call_each_listener_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ForeignClients() as strangers:
        place = listener.getsockname()
        assert place in set(listening_addresses(os.getpid()))
        strangers.find_listening_ranks({3: os.getpid()}, call=True)
        called = strangers.calls
        strangers.find_listening_ranks({3: os.getpid()}, call=True)
        assert called == strangers.calls > 0
        assert f"127.0.0.1:{place[1]}" in strangers.listening[3]
        strangers.leave()
        assert not strangers.ran


def test_replay_names_the_same_cause_as_the_check() -> None:
    """The Job of the replay has short reads: it is not judged as if it had none."""
    check = rendezvous.check_fragmented_messages_are_read_completely
    told = []
    with sessions.session("ddpcheck_implementations.faulty.lifecycle.rendezvous:PartialHeader", 2) as session:
        for _ in range(2):
            with pytest.raises(Finding) as failure:
                check(session)
            told.append([cause.id for cause in failure.value.diagnosis.causes])
            session.replayed = failure.value.job
    assert told[0] == told[1] == ["short-read-taken-for-all"]


def test_an_ipv6_address_is_told_from_its_port() -> None:
    assert address_of("::", 29500) == "[::]:29500"
    assert address_of("127.0.0.1", 29500) == "127.0.0.1:29500"


def test_trace_keeps_observations_of_the_start(tmp_path: Path) -> None:
    report = StartReport((("127.0.0.1:5",), ()), 7, ran=True)
    trace = Trace((RankTrace(0, "done", ()), RankTrace(1, "done", ())), 1.0, report)
    trace.save(tmp_path / "trace")
    assert Trace.load(tmp_path / "trace") == trace


def test_failure_after_undisturbed_start_keeps_its_own_cause() -> None:
    with sessions.session(collectives.__dict__["GatheredInOwnOrder"], 2) as session, pytest.raises(Finding) as caught:
        rendezvous.check_ranks_may_connect_in_any_order(session)
    assert "the ranks came in the order" not in str(caught.value)


def test_replicas_without_collectives_show_that_they_are_one_world() -> None:
    with sessions.session(replicas, 2) as session:
        rendezvous.check_ranks_may_connect_in_any_order(session)
        assert session.jobs_run == 1


def test_ranks_that_cannot_be_started_again_are_skipped_with_the_reason() -> None:
    launcher = Attached("127.0.0.1")
    launcher._started = True
    with (
        sessions.session(sockets, 2, launcher=launcher) as session,
        pytest.raises(Exception, match="cannot be started again"),
    ):
        session.run(Job(2, (Barrier(),), start=Start()))


def test_groups_are_checked_on_ranks_that_cannot_be_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with sessions.session(sockets, 2) as session:
        session.start()
        monkeypatch.setattr(type(session._launcher), "unavailable", lambda _: "they cannot be started again")
        groups.check_concurrent_groups_are_independent(session)
        assert session.jobs_run


def test_no_promise_means_no_rendezvous_verdict() -> None:
    names = ("check_ranks_may_connect_in_any_order",)
    (_, verdict) = run_checks(f"{HERE / 'test_rendezvous_checks.py'}:unpromised", (2,), names, settings=Settings())
    assert verdict.status == "skipped"
