"""Errors if ranks disagree, die or fall silent, and no rank keeps waiting."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import socket_ranks
from socket_ranks import LIMIT, on_ranks, outcomes_of

from ddpcheck.launchers.ports import reserve_port
from ddpcheck.seeded_values import Array
from ddpcheck_implementations.numpy_sockets.communicator import Communicator
from ddpcheck_implementations.numpy_sockets.errors import CommunicationError, Mismatch, PeerLost


@pytest.fixture(autouse=True, params=socket_ranks.TRANSPORTS)
def _transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_ranks, "transport", request.param)


def calls_one_thing_on_rank_1(comm: Communicator, first: str, second: str) -> None:
    own = np.ones(4, np.float32)
    calls = {
        "all_reduce": lambda: comm.all_reduce(own),
        "max": lambda: comm.all_reduce(own, "max"),
        "float64": lambda: comm.all_reduce(own.astype(np.float64)),
        "longer": lambda: comm.all_reduce(np.ones(5, np.float32)),
        "large": lambda: comm.all_reduce(np.ones(50_000, np.float32)),
        "broadcast": lambda: comm.broadcast(own, 0),
        "root_1": lambda: comm.broadcast(own, 1),
        "barrier": comm.barrier,
        "send": lambda: comm.send(own, 1),
    }
    calls[second if comm.rank == 1 else first]()
    comm.barrier()  # a root, or a sender, has received nothing before


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        ("all_reduce", "max", ["all_reduce(sum)", "all_reduce(max)"]),
        ("all_reduce", "float64", ["4 x float32", "4 x float64"]),
        ("all_reduce", "longer", ["4 x float32", "5 x float32"]),
        ("all_reduce", "large", ["4 x float32", "50000 x float32"]),
        ("all_reduce", "barrier", ["all_reduce(sum)", "barrier"]),
        ("broadcast", "all_reduce", ["broadcast(root 0)", "all_reduce(sum)"]),
        ("broadcast", "root_1", ["barrier", "broadcast(root"]),
        ("send", "all_reduce", ["send of 4", "all_reduce(sum)"]),
    ],
)
def test_ranks_that_disagree_are_told_what_each_of_them_does(first: str, second: str, both: list[str]) -> None:
    outcomes = outcomes_of(2, lambda comm: calls_one_thing_on_rank_1(comm, first, second))
    assert all(isinstance(outcome, CommunicationError) for outcome in outcomes), outcomes
    told = [str(outcome) for outcome in outcomes if isinstance(outcome, Mismatch)]
    assert told
    assert any(all(words in message for words in both) for message in told), told
    assert all(words in message for words in ("rank 0", "rank 1", "same order") for message in told), told


def test_a_rank_that_is_one_call_ahead_is_told_both_sequence_numbers() -> None:
    def program(comm: Communicator) -> None:
        if comm.rank == 1:
            comm.broadcast(np.ones(2), 1)
        comm.barrier()

    told = [str(outcome) for outcome in outcomes_of(2, program) if isinstance(outcome, Mismatch)]
    assert told
    assert all("operation 0 of ranks 0, 1" in message for message in told)


def test_a_rank_that_has_gone_on_is_told_from_what_was_reduced_before() -> None:
    """Rank 0 cannot notice: a rank that only receives sends nothing."""

    def program(comm: Communicator) -> None:
        for _ in range(2):
            comm.all_reduce(np.full(3, -1, np.int64))  # all bits set
        if comm.rank == 1:
            comm.recv(np.empty(3, np.int64), 0)
        else:
            comm.all_reduce(np.ones(3, np.int64))

    _, receiver = outcomes_of(2, program)
    assert isinstance(receiver, Mismatch), receiver
    assert all(words in str(receiver) for words in ("rank 0", "send of 3", "all_reduce(sum)")), receiver


def test_each_group_counts_for_itself_and_all_ranks_are_the_default_group() -> None:
    def program(comm: Communicator) -> None:
        if comm.rank == 1:
            comm.all_reduce(np.ones(2), group=(1,))
        comm.all_reduce(np.ones(2), group=(0, 1) if comm.rank else None)
        comm.all_reduce(np.ones(2), group=None if comm.rank else (0, 1))

    on_ranks(2, program)


@pytest.mark.parametrize("size", [4, 400_000])
@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_rank_that_is_gone_is_named_by_all_others(lost: int, size: int) -> None:
    def program(comm: Communicator) -> None:
        comm.barrier()
        if comm.rank != lost:
            comm.all_reduce(np.ones(size))

    for rank, outcome in enumerate(outcomes_of(3, program)):
        if rank != lost:
            assert isinstance(outcome, PeerLost)
            assert f"rank {lost}" in str(outcome) + "".join(getattr(outcome, "__notes__", [])), outcome
            assert "see" in str(outcome)


def test_a_silent_rank_is_named_within_the_time_limit() -> None:
    finished = threading.Event()

    def program(comm: Communicator) -> None:
        if comm.rank == 1:
            finished.wait()
            return
        try:
            comm.all_reduce(np.ones(4))
        finally:
            finished.set()

    silent, _ = outcomes_of(2, program, timeout=0.1)
    assert isinstance(silent, PeerLost)
    assert "rank 1 has sent nothing for 0.1 s" in str(silent)


def test_after_an_error_the_communicator_says_so() -> None:
    def program(comm: Communicator) -> None:
        with pytest.raises(CommunicationError):
            comm.all_reduce(np.ones(2 + comm.rank))
        comm.barrier()

    for outcome in outcomes_of(2, program):
        assert "failed before" in str(outcome)
        assert "start the ranks again" in str(outcome)


@pytest.mark.parametrize("size", [1, 100_000])
def test_after_an_error_in_the_background_the_communicator_says_so(size: int) -> None:
    def program(comm: Communicator) -> None:
        pending = comm.all_reduce_async(np.ones(2 + comm.rank))
        with pytest.raises(CommunicationError, match="failed before"):
            comm.all_reduce(np.ones(size))
        pending.wait()

    for outcome in outcomes_of(2, program):
        assert isinstance(outcome, CommunicationError)
        assert "failed before" not in str(outcome)


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda comm: comm.all_reduce(np.ones(2, np.complex64)), TypeError, "complex64"),
        (lambda comm: comm.all_reduce(np.ones(2, np.int32), "mean"), TypeError, "mean of int32"),
        (lambda comm: comm.all_reduce(np.ones(2), "median"), ValueError, "median"),
        (lambda comm: comm.all_reduce_async(np.ones(2), "median"), ValueError, "median"),
        (lambda comm: comm.all_reduce(np.ones(2), group=(1 - comm.rank,)), ValueError, "no group for rank"),
        (lambda comm: comm.all_reduce(np.ones(2), group=(1, 0)), ValueError, "ascending"),
        (lambda comm: comm.broadcast(np.ones(2), 2), ValueError, "root"),
        (lambda comm: comm.reduce_scatter(np.ones(3)), ValueError, "rows"),
        (lambda comm: comm.send(np.ones(2), comm.rank), ValueError, "exchange with rank"),
    ],
)
def test_a_call_that_cannot_work_is_refused_and_harms_nothing(call: Any, kind: type[Exception], words: str) -> None:
    def program(comm: Communicator) -> Array:
        with pytest.raises(kind, match=words):
            call(comm)
        return comm.all_reduce(np.ones(2))

    assert [result.tolist() for result in on_ranks(2, program)] == [[2, 2]] * 2


def test_bytes_that_no_rank_would_send_are_an_error_that_names_their_sender() -> None:
    told = threading.Event()

    def program(comm: Communicator) -> None:
        if comm.rank == 1:
            comm._peers[0]._socket.sendall(b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n")
            assert told.wait(LIMIT)
            return
        try:
            comm.all_reduce(np.ones(4))
        finally:
            told.set()

    outcome, _ = outcomes_of(2, program)
    assert isinstance(outcome, Mismatch)
    assert "rank 1 sent bytes that are no header (47455420" in str(outcome)


SURVIVOR = """
import os, signal, sys
import numpy as np
from ddpcheck.contract.rank_context import rank_context
from ddpcheck_implementations.numpy_sockets.errors import PeerLost
from ddpcheck_implementations.numpy_sockets.start import start

comm = start(rank_context(), transport=sys.argv[1], timeout=float(sys.argv[3]))
array = comm.empty((400_000,), np.float32)
array[:] = 1
comm.all_reduce_in_place(array)
comm.all_reduce(array)
if comm.rank == 1:
    os.kill(os.getpid(), getattr(signal, sys.argv[2]))
try:
    comm.all_reduce_in_place(array)
except PeerLost as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("how", "limit", "says"),
    [("SIGKILL", 20.0, "rank 1 closed"), ("SIGSTOP", 0.3, "rank 1 has sent nothing for 0.3 s")],
)
def test_a_process_that_is_killed_or_stopped_is_named_and_leaves_nothing(how: str, limit: float, says: str) -> None:
    port = reserve_port()
    before = sorted(Path("/dev/shm").glob("*numpy_sockets*"))
    shared = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "WORLD_SIZE": "2", "MASTER_PORT": str(port.number)}
    command = [sys.executable, "-c", SURVIVOR, socket_ranks.transport, how, str(limit)]
    ranks = [
        subprocess.Popen(command, env={**shared, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    try:
        assert ranks[0].communicate(timeout=LIMIT)[0].startswith(says)
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
        port.release()
    assert sorted(Path("/dev/shm").glob("*numpy_sockets*")) == before
