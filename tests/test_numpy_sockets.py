"""The TCP communicator: values, bits, bytes on the wire, and what is said when ranks disagree, die or fall silent."""

from __future__ import annotations

import socket
import struct
import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from socket_ranks import LIMIT, in_threads, on_ranks, outcomes_of

from ddpcheck.launchers.ports import reserve_port
from ddpcheck.values import Array, key_of, numbers
from ddpcheck_implementations.numpy_sockets import rendezvous
from ddpcheck_implementations.numpy_sockets.communicator import Communicator
from ddpcheck_implementations.numpy_sockets.errors import CommunicationError, Mismatch, PeerLost, RendezvousError
from ddpcheck_implementations.numpy_sockets.rendezvous import Meeting, meet

REDUCED = {
    "sum": lambda arrays: sum(arrays[1:], arrays[0]),
    "mean": lambda arrays: sum(arrays[1:], arrays[0]) / len(arrays),
    "min": lambda arrays: np.minimum.reduce(arrays),
    "max": lambda arrays: np.maximum.reduce(arrays),
    "prod": lambda arrays: np.multiply.reduce(arrays),
}
PATHS = [0, 1 << 30]
"""direct_bytes: all through the ring, or all straight from rank to rank."""


def of_rank(rank: int, shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> Array:
    return numbers(shape, dtype, "powers", key_of(seed, rank))


def same_bits(arrays: list[Array]) -> bool:
    return len({(array.dtype, array.shape, array.tobytes()) for array in arrays}) == 1


@pytest.mark.parametrize("direct_bytes", PATHS)
@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5])
def test_collectives_at_sizes_around_the_world_size(world_size: int, direct_bytes: int) -> None:
    shapes = [(size,) for size in range(world_size + 3)] + [(), (0, 3), (1, 7), (3, 1, 5)]

    def program(comm: Communicator) -> dict[Any, Array]:
        made: dict[Any, Array] = {}
        for shape in shapes:
            own = of_rank(comm.rank, shape)
            kept = own.copy()
            for op in REDUCED:
                made["all_reduce", op, shape] = comm.all_reduce(own, op)
            made["all_gather", shape] = comm.all_gather(own)
            for root in range(world_size):
                made["broadcast", root, shape] = comm.broadcast(own, root)
            rows = of_rank(comm.rank, (world_size, *shape))
            made["reduce_scatter", shape] = comm.reduce_scatter(rows)
            assert (own == kept).all()
            assert not any(np.may_share_memory(own, array) for array in made.values())
        comm.barrier()
        return made

    results = on_ranks(world_size, program, direct_bytes=direct_bytes)
    for shape in shapes:
        arrays = [of_rank(rank, shape) for rank in range(world_size)]
        for op, reduced in REDUCED.items():
            got = [result["all_reduce", op, shape] for result in results]
            assert same_bits([*got, np.asarray(reduced(arrays), np.float32)]), (op, shape)
        assert same_bits([*(result["all_gather", shape] for result in results), np.stack(arrays)]), shape
        for root in range(world_size):
            assert same_bits([*(result["broadcast", root, shape] for result in results), arrays[root]]), (root, shape)
        rows = sum(of_rank(rank, (world_size, *shape)) for rank in range(world_size))
        for rank, result in enumerate(results):
            assert same_bits([result["reduce_scatter", shape], np.asarray(rows[rank : rank + 1])]), shape


@pytest.mark.parametrize("direct_bytes", PATHS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64"])
def test_every_dtype_stays_what_it_is(dtype: str, direct_bytes: int) -> None:
    ops = [op for op in REDUCED if op != "mean" or dtype.startswith("float")]
    results = on_ranks(
        3, lambda comm: [comm.all_reduce(of_rank(comm.rank, (7,), dtype), op) for op in ops], direct_bytes=direct_bytes
    )
    arrays = [of_rank(rank, (7,), dtype) for rank in range(3)]
    for place, op in enumerate(ops):
        assert same_bits([*(result[place] for result in results), REDUCED[op](arrays).astype(dtype)]), op


@pytest.mark.parametrize("direct_bytes", PATHS)
def test_memory_layout_does_not_matter(direct_bytes: int) -> None:
    plain = [of_rank(rank, (4, 6)) for rank in range(2)]
    layouts = {
        "F": np.asfortranarray,
        "transposed": lambda array: array.T.copy().T,
        "strided": lambda array: np.repeat(array, 2, axis=1)[:, ::2],
        "reversed": lambda array: array[::-1].copy()[::-1],
    }

    def program(comm: Communicator) -> list[Array]:
        arrays = [lay(plain[comm.rank]) for lay in layouts.values()]
        made = [comm.all_reduce(array) for array in arrays]
        made += [comm.broadcast(array, 1) for array in arrays]
        made += [comm.all_gather(array) for array in arrays]
        for array in arrays:
            if comm.rank:
                comm.send(array, 0)
            else:
                made.append(comm.recv(array, 1))
        return made

    zero, one = on_ranks(2, program, direct_bytes=direct_bytes)
    wanted = [plain[0] + plain[1]] * 4 + [plain[1]] * 4 + [np.stack(plain)] * 4
    assert all(same_bits([got, want]) for got, want in zip(zero, wanted + [plain[1]] * 4, strict=True))
    assert all(same_bits([got, want]) for got, want in zip(one, wanted, strict=True))


@pytest.mark.parametrize("direct_bytes", PATHS)
@pytest.mark.parametrize("holder", [0, 1, 2])
def test_min_and_max_propagate_nan_whoever_holds_it(holder: int, direct_bytes: int) -> None:
    def program(comm: Communicator) -> list[Array]:
        own = np.array([np.nan if comm.rank == holder else comm.rank + 1.0, comm.rank + 1.0, 2.0])
        return [comm.all_reduce(own, "min"), comm.all_reduce(own, "max")]

    for low, high in on_ranks(3, program, direct_bytes=direct_bytes):
        np.testing.assert_array_equal(low, [np.nan, 1, 2])
        np.testing.assert_array_equal(high, [np.nan, 3, 2])


@pytest.mark.parametrize("world_size", [2, 3])
def test_large_arrays_do_not_deadlock(world_size: int) -> None:
    count = 5_000_011  # 20 MB, and no multiple of 2 or 3
    own = [np.arange(rank, count + rank, dtype=np.float32) % 1024 for rank in range(world_size)]
    results = on_ranks(world_size, lambda comm: comm.all_reduce(own[comm.rank]))
    assert same_bits([*results, np.add.reduce(own)])


@pytest.mark.parametrize("world_size", [2, 3, 4, 5])
def test_a_ring_sends_its_share_of_the_data_and_no_more(world_size: int) -> None:
    count = 60_000  # a multiple of 2, 3, 4 and 5; 240 KB go through the ring without being told to
    own = np.ones(count, np.float32)

    def program(comm: Communicator) -> list[tuple[int, int]]:
        made = []
        for operation in (comm.all_reduce, comm.reduce_scatter, comm.all_gather):
            messages, sent = comm.traffic.messages, comm.traffic.payload_bytes
            operation(own)
            made.append((comm.traffic.messages - messages, comm.traffic.payload_bytes - sent))
        return made

    share = own.nbytes // world_size
    steps = world_size - 1
    want = [(2 * steps, 2 * steps * share), (steps, steps * share), (steps, steps * own.nbytes)]
    assert on_ranks(world_size, program) == [want] * world_size


def test_groups_work_side_by_side() -> None:
    def program(comm: Communicator) -> list[Array]:
        own = of_rank(comm.rank, (5,))
        pair = (0, 2) if comm.rank in (0, 2) else (1, 3)
        made = [comm.all_reduce(own, group=pair), comm.broadcast(own, pair[1], group=pair), comm.all_reduce(own)]
        comm.barrier(group=pair)
        if comm.rank:
            made.append(comm.all_reduce(own, "max", group=(1, 2, 3)))
        return made

    results = on_ranks(4, program)
    arrays = [of_rank(rank, (5,)) for rank in range(4)]
    for rank, (paired, from_root, everyone, *three) in enumerate(results):
        one, other = arrays[rank % 2], arrays[rank % 2 + 2]
        assert same_bits([paired, one + other])
        assert same_bits([from_root, other])
        assert same_bits([everyone, sum(arrays)])
        assert all(same_bits([array, np.maximum.reduce(arrays[1:])]) for array in three)


def test_several_asynchronous_operations_in_flight_keep_apart() -> None:
    def program(comm: Communicator) -> list[Array]:
        handles = [comm.all_reduce_async(of_rank(comm.rank, (50_000,), seed=seed)) for seed in range(4)]
        between = comm.all_reduce(of_rank(comm.rank, (3,), seed=9))
        order = range(4) if comm.rank else reversed(range(4))
        done = {place: handles[place].wait() for place in order}
        return [done[place] for place in range(4)] + [between]

    results = on_ranks(3, program)
    for place, seed in enumerate([0, 1, 2, 3, 9]):
        shape = (3,) if seed == 9 else (50_000,)
        want = sum(of_rank(rank, shape, seed=seed) for rank in range(3))
        assert same_bits([*(result[place] for result in results), np.asarray(want)])


def test_a_rank_may_leave_while_others_still_receive_from_it() -> None:
    large = np.arange(5_000_000, dtype=np.float32)

    def program(comm: Communicator) -> Array | None:
        if comm.rank == 0:
            comm.send(large, 1)  # and is closed at once
            return None
        return comm.recv(np.empty_like(large), 0)

    assert same_bits([on_ranks(2, program)[1], large])


# ------------------------------------------------------------------------------------------------------------- errors


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
    comm.barrier()  # a root, or a sender, has nothing to receive before


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        ("all_reduce", "max", ["all_reduce(sum)", "all_reduce(max)"]),
        ("all_reduce", "float64", ["4 x float32", "4 x float64"]),
        ("all_reduce", "longer", ["4 x float32", "5 x float32"]),
        ("all_reduce", "large", ["4 x float32", "50000 x float32"]),
        ("all_reduce", "barrier", ["all_reduce(sum)", "barrier"]),
        ("broadcast", "all_reduce", ["broadcast(root 0)", "all_reduce(sum)"]),
        ("broadcast", "root_1", ["barrier", "broadcast(root 1)"]),
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
            finished.wait(LIMIT)
            return
        try:
            comm.all_reduce(np.ones(4))
        finally:
            finished.set()

    start = time.monotonic()
    silent, _ = outcomes_of(2, program, timeout=0.1)
    assert isinstance(silent, PeerLost)
    assert "rank 1 has sent nothing for 0.1 s" in str(silent)
    assert time.monotonic() - start < LIMIT / 2


def test_after_an_error_the_communicator_says_so() -> None:
    def program(comm: Communicator) -> None:
        with pytest.raises(CommunicationError):
            comm.all_reduce(np.ones(2 + comm.rank))
        comm.barrier()

    for outcome in outcomes_of(2, program):
        assert "failed before" in str(outcome)
        assert "start the ranks again" in str(outcome)


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


# --------------------------------------------------------------------------------------------------------- rendezvous


def meetings(count: int, port: int, **options: Any) -> list[Meeting]:
    return [Meeting(rank, count, "127.0.0.1", port, **({"timeout": LIMIT} | options)) for rank in range(count)]


def close(outcomes: list[Any]) -> None:
    for outcome in outcomes:
        for connection in outcome.values() if isinstance(outcome, dict) else ():
            connection.close()


def stranger(port: int, words: bytes) -> socket.socket:
    """Someone who talks to rank 0 before the ranks do; it tries until rank 0 listens."""
    deadline = time.monotonic() + LIMIT
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port), LIMIT)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            continue
        connection.sendall(words)
        return connection


def hello(rank: int, world_size: int, run: str = "") -> bytes:
    digest = Meeting(rank, world_size, "", 0, run).run_digest
    return struct.pack("!4sH16sIIH46s", b"NPSR", 1, digest, rank, world_size, 1, b"127.0.0.1")


def test_strangers_do_not_disturb_the_start() -> None:
    port = reserve_port()
    words = [
        b"",
        b"GET / HTTP/1.1\r\nHost: here\r\n" + b"\r\n" * 60,
        hello(1, 3)[:-1],
        hello(1, 3, run="another"),
        hello(7, 3),
    ]
    came = threading.Event()

    def visit() -> list[socket.socket]:
        visitors = [stranger(port.number, said) for said in words]
        visitors[2].close()  # in the middle of its first words
        came.set()
        return visitors

    def late(meeting: Meeting) -> Any:
        assert came.wait(LIMIT)
        return meet(meeting)

    first, *others = meetings(3, port.number)
    visitors, *found = in_threads([visit, lambda: meet(first), *(lambda m=m: late(m) for m in others)])
    assert [sorted(connections) for connections in found] == [[1, 2], [0, 2], [0, 1]]
    for visitor, answer in zip(visitors[3:], [b"another run", b"check RANK"], strict=True):
        assert answer in visitor.recv(1000)
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
            meet(Meeting(1, 4, "127.0.0.1", port.number, timeout=LIMIT))
        finally:
            refused.set()

    def right() -> Any:
        assert refused.wait(LIMIT)
        return meet(second)

    outcome, *found = in_threads([wrong, lambda: meet(first), right])
    assert isinstance(outcome, RendezvousError)
    assert "rank 1 of 4 does not fit a world of 2" in str(outcome)
    assert [sorted(connections) for connections in found] == [[1], [0]]
    close(found)

    one, two, three = meetings(3, port.number, timeout=0.3)
    outcomes = in_threads([lambda: meet(one), lambda: meet(two), lambda: meet(two)])
    assert any("there is a rank 1 already" in str(outcome) for outcome in outcomes[1:])
    assert "still waits for rank 2" in str(outcomes[0])
    assert three.rank == 2
    port.release()


def test_rank_0_may_be_late(monkeypatch: pytest.MonkeyPatch) -> None:
    port = reserve_port()
    refused = threading.Event()
    patient = SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: refused.set())
    monkeypatch.setattr(rendezvous, "time", patient)
    first, second = meetings(2, port.number)

    def late() -> Any:
        assert refused.wait(LIMIT)
        return meet(first)

    found = in_threads([late, lambda: meet(second)])
    assert [sorted(connections) for connections in found] == [[1], [0]]
    close(found)
    port.release()


def test_missing_ranks_are_named_by_both_sides() -> None:
    port = reserve_port()
    outcomes = in_threads([lambda: meet(meetings(4, port.number, timeout=0.1)[0])])
    assert "still waits for ranks 1, 2, 3" in str(outcomes[0])
    outcomes = in_threads([lambda: meet(meetings(4, port.number, timeout=0.1)[3])])
    assert "rank 3 could not meet rank 0" in str(outcomes[0])
    assert "MASTER_ADDR and MASTER_PORT" in str(outcomes[0])
    port.release()


def test_a_port_in_use_is_a_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        with pytest.raises(RendezvousError, match="choose another MASTER_PORT"):
            meet(meetings(2, number)[0])
