"""Ranks that wait in a circle raise an error over every transport; a rank that is only slow is never part of one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import socket_ranks
from socket_ranks import LIMIT, on_ranks, outcomes_of

from ddpcheck_implementations.numpy_sockets.communicator import Communicator
from ddpcheck_implementations.numpy_sockets.connections import deadlock_detector as detector_module
from ddpcheck_implementations.numpy_sockets.connections import wire_format
from ddpcheck_implementations.numpy_sockets.connections.deadlock_detector import DeadlockDetector
from ddpcheck_implementations.numpy_sockets.connections.waits import Wait, is_deadlock, pack, unpack
from ddpcheck_implementations.numpy_sockets.errors import Mismatch

NEVER = 10_000.0
"""A time limit that is never reached here."""
_LARGE = 4_000_000
_HEADER = wire_format.pack("send", np.ones(4, np.float32))


@pytest.fixture(params=socket_ranks.TRANSPORTS)
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(socket_ranks, "transport", request.param)
    return str(request.param)


def next_is_root(comm: Communicator) -> None:
    """Every rank takes another for the root, so no rank sends."""
    comm.barrier()
    comm.broadcast(np.ones(4), (comm.rank + 1) % comm.world_size)


def all_receive(comm: Communicator) -> None:
    comm.recv(np.ones(4), (comm.rank + 1) % comm.world_size)


def all_send(comm: Communicator) -> None:
    """Send more than the kernel buffers for a rank that receives nothing."""
    comm.send(np.ones(_LARGE), (comm.rank + 1) % comm.world_size)


def groups_in_a_circle(comm: Communicator) -> None:
    """Each pair of neighbours is a group, and each rank starts with the next one. Only the others' messages arrive."""
    after = sorted((comm.rank, (comm.rank + 1) % comm.world_size))
    comm.all_reduce(np.ones(100_000), group=after)


_WORDS: dict[Callable[[Communicator], None], str] = {
    next_is_root: "broadcast(root 1)",
    all_receive: "recv of 4",
    all_send: f"send of {_LARGE}",
    groups_in_a_circle: "all_reduce(sum)",
}


@pytest.mark.parametrize("world_size", [2, 3, 4])
@pytest.mark.parametrize("program", _WORDS)
def test_ranks_that_wait_in_a_circle_are_all_told_in_what(
    program: Callable[[Communicator], None], world_size: int, transport: str
) -> None:
    if program is groups_in_a_circle and world_size == 2:
        pytest.skip("two ranks have one group only")
    outcomes = outcomes_of(world_size, program, timeout=NEVER)
    for rank, outcome in enumerate(outcomes):
        assert isinstance(outcome, Mismatch), outcomes
        told = str(outcome).partition(": ")[2]
        assert told.startswith(f"rank {rank} waits for rank ")
        assert all(f"rank {other} waits for rank " in told for other in range(world_size))
        assert "same order" in told
    assert _WORDS[program] in str(outcomes[0])


def test_a_circle_of_some_ranks_ends_the_wait_of_those_that_wait_for_it(transport: str) -> None:
    def program(comm: Communicator) -> None:
        comm.recv(np.ones(4), {0: 1, 1: 0, 2: 1, 3: 2}[comm.rank])

    outcomes = outcomes_of(4, program, timeout=NEVER)
    assert all(isinstance(outcome, Exception) for outcome in outcomes), outcomes
    assert all("rank 1 waits for rank 0" in str(outcome) for outcome in outcomes[:2]), outcomes


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ranks that were asked whether they wait, in order."""
    found: list[int] = []
    say = DeadlockDetector._send

    def heard(self: DeadlockDetector, kind: int, other: int, *rest: Any) -> None:
        say(self, kind, other, *rest)
        if kind == detector_module._ASK:
            found.append(other)

    monkeypatch.setattr(DeadlockDetector, "_send", heard)
    return found


def test_a_rank_that_is_only_slow_is_asked_in_vain_and_awaited(transport: str, asked: list[int]) -> None:
    """Rank 0 is late, when the others have asked for a while. Rank 2 waits for 1, which waits for 0."""
    late = threading.Event()

    def program(comm: Communicator) -> list[float]:
        comm.barrier()
        if comm.rank == 0:
            while asked.count(0) < 2 and not late.wait(0.01):
                pass
        got: list[float] = comm.broadcast(np.full(3, 7.0 + comm.rank), 0).tolist()
        comm.barrier()
        return got

    assert on_ranks(4, program, timeout=LIMIT) == [[7.0] * 3] * 4


def test_nobody_is_asked_where_nobody_waits_for_long(transport: str, asked: list[int]) -> None:
    def program(comm: Communicator) -> None:
        for _ in range(20):
            comm.all_reduce(np.ones(4))
            comm.all_reduce(np.ones(100_000))
            comm.barrier()

    on_ranks(2, program)
    assert asked == []


def waits(*ends: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]) -> dict[int, Wait]:
    """sources, sinks and unread of rank 0, 1, ..."""
    return {rank: Wait(rank, 1, _HEADER, *some) for rank, some in enumerate(ends)}


@pytest.mark.parametrize(
    ("said", "stuck"),
    [
        (waits(((1,), (), ()), ((0,), (), ())), True),
        (waits(((1,), (), ()), ((2,), (), ()), ((0,), (), ())), True),
        (waits(((1,), (), ()), ((2,), (), ())), False),  # rank 2 has not answered
        (waits(((1,), (), ()), ((0,), (), (0,))), False),  # a message is on its way to rank 0
        (waits(((1,), (), (2,)), ((2,), (), ()), ((0,), (), ())), False),
        (waits(((1,), (), (1,)), ((2,), (), ()), ((0,), (), ())), True),  # but to a rank that does not wait for it
        (waits(((1,), (2,), ()), ((0,), (), ())), False),  # rank 2 may receive it
        (waits(((), (1,), (1,)), ((), (0,), (0,))), True),  # each waits until the other receives
        (waits(((), (1,), (1,)), ((0,), (), ())), False),  # rank 1 is about to receive
    ],
)
def test_only_closed_circles_of_answers_with_nothing_under_way_are_one(said: dict[int, Wait], stuck: bool) -> None:
    assert is_deadlock(said) == stuck


def test_what_is_said_of_waits_is_read_again_and_nothing_else_is() -> None:
    said = waits(((1, 2), (3,), ()), ((0,), (), (2, 5)))
    assert unpack(pack(said.values())) == said
    for wrong in (b"x", pack(said.values())[:-1], pack([Wait(0, 1, _HEADER, ())])):
        with pytest.raises(ValueError, match="wait"):
            unpack(wrong)


class Ranks:
    """Detectors of ranks in one thread, which look on request."""

    def __init__(self, count: int) -> None:
        ports = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
        for port in ports:
            port.bind(("127.0.0.1", 0))
        places = {rank: (port.getsockname(), bytes([rank + 1]) * 16) for rank, port in enumerate(ports)}
        self.detectors = [DeadlockDetector(rank) for rank in range(count)]
        for rank, detector in enumerate(self.detectors):
            others = {other: place for other, place in places.items() if other != rank}
            detector.open(ports[rank], places[rank][1], others, {})

    def wait(self, rank: int, source: int, still: Callable[[], bool] = lambda: True) -> None:
        self.detectors[rank].end_wait()
        self.detectors[rank].start_wait(_HEADER, still, (source,))

    def look(self, *order: int) -> bool:
        """Whether one of the ranks has found a circle."""
        for rank in order:
            try:
                self.detectors[rank].poll()
            except Mismatch:
                return True
        return False

    def close(self) -> None:
        for detector in self.detectors:
            detector.close()


@pytest.fixture
def pair() -> Any:
    made = Ranks(2)
    yield made
    made.close()


def test_two_answers_of_the_same_waits_are_a_proof_and_one_is_not(pair: Ranks) -> None:
    pair.wait(0, 1)
    pair.wait(1, 0)
    assert not pair.look(0)  # asks
    assert not pair.look(1)  # answers, and asks
    assert not pair.look(0)  # has one answer, answers, and asks again
    assert pair.look(1, 0)


def test_a_rank_that_has_gone_on_between_two_answers_is_in_no_circle(pair: Ranks) -> None:
    pair.wait(0, 1)
    pair.wait(1, 0)
    assert not pair.look(0, 1, 0)
    pair.wait(1, 0)  # again: a message has arrived in between
    assert not pair.look(1, 0)


def test_a_rank_whose_message_has_come_says_nothing_more(pair: Ranks) -> None:
    come: list[bool] = []
    pair.wait(0, 1, lambda: not come)
    pair.wait(1, 0)
    assert not pair.look(0, 1, 0)
    come.append(True)
    assert not pair.look(1, 0, 1, 0)


def test_datagrams_of_strangers_are_not_heard(pair: Ranks) -> None:
    place = pair.detectors[1]._others[0][0]
    proof = pack(waits(((1,), (), ()), ((0,), (), ())).values())
    pair.wait(0, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for token in (bytes([2]) * 16, b"x" * 16, b""):
            stranger.sendto(detector_module._START.pack(token, detector_module._PROOF, 1, 0) + proof, place)
        stranger.sendto(b"short", place)
        assert not pair.look(0)
        stranger.sendto(
            detector_module._START.pack(bytes([1]) * 16, detector_module._PROOF, 1, 0) + proof, place
        )  # rank 0's own token
        assert pair.look(0)
