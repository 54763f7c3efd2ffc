"""The rendezvous: late ranks, wrong ranks, foreign clients, and errors that name missing ranks."""

from __future__ import annotations

import hmac
import socket
import struct
import threading
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from socket_ranks import LIMIT, in_threads

from ddpcheck.launchers.ports import reserve_port
from ddpcheck_implementations.numpy_sockets.errors import RendezvousError
from ddpcheck_implementations.numpy_sockets.rendezvous import accepting, protocol
from ddpcheck_implementations.numpy_sockets.rendezvous.protocol import RendezvousConfig, connect_all_ranks


def meetings(count: int, port: int, **options: Any) -> list[RendezvousConfig]:
    return [RendezvousConfig(rank, count, "127.0.0.1", port, **({"timeout": LIMIT} | options)) for rank in range(count)]


def connect_after(event: threading.Event, rank: RendezvousConfig) -> Any:
    """Connect a rank that is late: only once the event has come."""
    assert event.wait(LIMIT)
    return connect_all_ranks(rank)


def close(outcomes: list[Any]) -> None:
    for outcome in outcomes:
        for connection in outcome.values() if isinstance(outcome, dict) else ():
            connection.close()


def stranger(port: int, words: Callable[[bytes], bytes]) -> socket.socket:
    """A foreign client that connects to rank 0 before the ranks do. words: its answer to rank 0's challenge."""
    deadline = time.monotonic() + LIMIT
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port), LIMIT)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            continue
        connection.sendall(words(connection.recv(16)))
        return connection


def hello(rank: int, world_size: int, run: str = "", start: bytes | None = None) -> Callable[[bytes], bytes]:
    """start: the challenge of another rendezvous, for which this answer was recorded."""
    digest = RendezvousConfig(rank, world_size, "", 0, run).run_digest
    told = struct.pack("!16sIIH46s", digest, rank, world_size, 1, b"127.0.0.1")

    def say(challenge: bytes) -> bytes:
        return struct.pack("!4sH", b"NPSR", 2) + hmac.digest(run.encode(), (start or challenge) + told, "sha256") + told

    return say


def test_strangers_do_not_disturb_the_start() -> None:
    port = reserve_port()
    words = [
        lambda _: b"",
        lambda _: b"GET / HTTP/1.1\r\nHost: here\r\n" + b"\r\n" * 60,
        lambda challenge: hello(1, 3)(challenge)[:-1],
        hello(1, 3, run="another"),
        hello(7, 3),
    ]
    came = threading.Event()

    def visit() -> list[socket.socket]:
        visitors = [stranger(port.number, said) for said in words]
        visitors[2].close()  # in the middle of its greeting
        came.set()
        return visitors

    first, *others = meetings(3, port.number)
    visitors, *found = in_threads(
        [visit, lambda: connect_all_ranks(first), *(partial(connect_after, came, rank) for rank in others)]
    )
    assert [sorted(connections) for connections in found] == [[1, 2], [0, 2], [0, 1]]
    for visitor, answer in zip(visitors[3:], [b"another run", b"check RANK"], strict=True):
        assert answer in visitor.recv(1000)
    close(found)
    for visitor in visitors:
        visitor.close()
    port.release()


def test_messages_of_an_earlier_start_are_ignored() -> None:
    port = reserve_port()
    first, *others = meetings(3, port.number, run="the name")
    came = threading.Event()

    def visit() -> list[socket.socket]:
        said = [hello(1, 3, "the name", start=b"another start..."), hello(2, 3, "the name", start=bytes(16))]
        visitors = [stranger(port.number, words) for words in said]
        for visitor in visitors:
            assert visitor.recv(100) == b""  # closed
        came.set()
        return visitors

    visitors, *found = in_threads(
        [visit, lambda: connect_all_ranks(first), *(partial(connect_after, came, rank) for rank in others)]
    )
    assert [sorted(connections) for connections in found] == [[1, 2], [0, 2], [0, 1]]
    close(found)
    for visitor in visitors:
        visitor.close()
    port.release()


def test_many_silent_strangers_make_room_for_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "_MAX_FOREIGN_CLIENTS", 2)
    port = reserve_port()
    first, second = meetings(2, port.number)
    came = threading.Event()

    def visit() -> list[socket.socket]:
        visitors = [stranger(port.number, lambda _: b"") for _ in range(6)]
        assert visitors[0].recv(100) == b""  # closed, before the ranks come
        came.set()
        return visitors

    visitors, *found = in_threads([visit, lambda: connect_all_ranks(first), partial(connect_after, came, second)])
    assert [sorted(connections) for connections in found] == [[1], [0]]
    close(found)
    for visitor in visitors:
        visitor.close()
    port.release()


def test_a_rank_twice_or_of_another_world_is_turned_away_with_the_reason() -> None:
    port = reserve_port()
    first, second = meetings(2, port.number)
    refused = threading.Event()

    def wrong() -> None:
        try:
            connect_all_ranks(RendezvousConfig(1, 4, "127.0.0.1", port.number, timeout=LIMIT))
        finally:
            refused.set()

    outcome, *found = in_threads([wrong, lambda: connect_all_ranks(first), partial(connect_after, refused, second)])
    assert isinstance(outcome, RendezvousError)
    assert "rank 1 of 4 does not fit a world of 2" in str(outcome)
    assert [sorted(connections) for connections in found] == [[1], [0]]
    close(found)

    first, second, third = meetings(3, port.number)
    refused = threading.Event()

    def one_of_two() -> Any:
        try:
            return connect_all_ranks(second)
        finally:
            refused.set()

    outcomes = in_threads(
        [lambda: connect_all_ranks(first), one_of_two, one_of_two, partial(connect_after, refused, third)]
    )
    (error,) = (outcome for outcome in outcomes if isinstance(outcome, Exception))
    assert "there is a rank 1 already" in str(error)
    close(outcomes)
    port.release()


def test_rank_0_may_be_late(monkeypatch: pytest.MonkeyPatch) -> None:
    port = reserve_port()
    refused = threading.Event()
    patient = SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: refused.set())
    monkeypatch.setattr(protocol, "time", patient)
    first, second = meetings(2, port.number)

    found = in_threads([partial(connect_after, refused, first), lambda: connect_all_ranks(second)])
    assert [sorted(connections) for connections in found] == [[1], [0]]
    close(found)
    port.release()


def test_missing_ranks_are_named_by_both_sides() -> None:
    port = reserve_port()
    outcomes = in_threads([lambda: connect_all_ranks(meetings(4, port.number, timeout=0.1)[0])])
    assert "still waits for ranks 1, 2, 3" in str(outcomes[0])
    outcomes = in_threads([lambda: connect_all_ranks(meetings(4, port.number, timeout=0.1)[3])])
    assert "rank 3 could not meet rank 0" in str(outcomes[0])
    assert "MASTER_ADDR and MASTER_PORT" in str(outcomes[0])
    port.release()


def test_a_port_in_use_is_a_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        with pytest.raises(RendezvousError, match="choose another MASTER_PORT"):
            connect_all_ranks(meetings(2, number)[0])
