"""The TCP communicator: values, bits, bytes on the wire, and the order of operations."""

from __future__ import annotations

import socket
from pathlib import Path

import numpy as np
import pytest
import socket_ranks
from rank_arrays import REDUCED, of_rank, same_bits
from socket_ranks import on_ranks

from ddpcheck.seeded_values import Array
from ddpcheck_implementations.numpy_sockets.communicator import Communicator
from ddpcheck_implementations.numpy_sockets.connections.socket_options import IN_FLIGHT_BYTES, set_options
from ddpcheck_implementations.numpy_sockets.shared_memory.mapping import MAX_CACHED


@pytest.fixture(autouse=True, params=socket_ranks.TRANSPORTS)
def _transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_ranks, "transport", request.param)


@pytest.mark.parametrize("world_size", [2, 3])
def test_large_arrays_do_not_deadlock(world_size: int) -> None:
    count = 5_000_011  # 20 MB, not a multiple of 2 or 3
    own = [np.arange(rank, count + rank, dtype=np.float32) % 1024 for rank in range(world_size)]
    results = on_ranks(world_size, lambda comm: comm.all_reduce(own[comm.rank]))
    assert same_bits([*results, np.add.reduce(own)])


@pytest.mark.parametrize("world_size", [2, 3, 4, 5])
def test_a_ring_sends_its_share_of_the_data_and_no_more(world_size: int) -> None:
    count = 60_000  # a multiple of 2, 3, 4 and 5; 240 KB use the ring by default
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
    assert on_ranks(world_size, program, transport="tcp") == [want] * world_size


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_in_memory_others_read_the_share_of_the_data_that_a_ring_would_send(world_size: int) -> None:
    own = np.ones(600_000, np.float32)

    def program(comm: Communicator) -> list[int]:
        made = []
        for operation in (comm.all_reduce, comm.reduce_scatter, comm.all_gather):
            sent = comm.traffic.payload_bytes
            operation(own)
            made.append(comm.traffic.payload_bytes - sent)
        mine = comm.empty(own.shape, own.dtype)
        mine[:] = own
        sent = comm.traffic.payload_bytes
        comm.all_reduce_in_place(mine)
        return [*made, comm.traffic.payload_bytes - sent]

    share = own.nbytes * (world_size - 1) // world_size
    want = [2 * share, share, own.nbytes * (world_size - 1), 2 * share]
    for got in on_ranks(world_size, program, transport="shm"):
        assert got == pytest.approx(want, rel=1e-4)


@pytest.mark.parametrize("count", [0, 3, 10_000, 300_001, 1_000_003])
@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_in_place_gives_the_same_bits_wherever_the_arrays_are(world_size: int, count: int) -> None:
    """One rank's array may be in memory that others reach while another rank's is not."""

    def program(comm: Communicator) -> list[Array]:
        own = of_rank(comm.rank, (count,))
        made = []
        for op in ("sum", "mean", "max"):
            anywhere = own.copy()
            comm.all_reduce_in_place(anywhere, op)
            reachable, mixed = comm.empty((count,), "float32"), comm.empty((count + 7,), "float32")[7:]
            reachable[:] = mixed[:] = own
            comm.all_reduce_in_place(reachable, op)
            mixed = mixed if comm.rank else mixed.copy()
            comm.all_reduce_in_place(mixed, op)
            made += [comm.all_reduce(own, op), anywhere, reachable, mixed]
        return made

    results = on_ranks(world_size, program)
    arrays = [of_rank(rank, (count,)) for rank in range(world_size)]
    for op, start in (("sum", 0), ("mean", 4), ("max", 8)):
        got = [array for result in results for array in result[start : start + 4]]
        assert same_bits([*got, np.asarray(REDUCED[op](arrays), np.float32)]), op


def test_memory_of_arrays_that_are_gone_is_used_again() -> None:
    def program(comm: Communicator) -> tuple[bool, bool]:
        first = comm.empty((100_000,), "float32")
        address = first.__array_interface__["data"][0]
        kept = comm.empty((100_000,), "float32")
        apart = not np.may_share_memory(first, kept)
        del first
        return apart, comm.empty((300, 300), "float32").__array_interface__["data"][0] == address

    assert on_ranks(2, program, transport="shm") == [(True, True)] * 2


def test_in_place_reaches_memory_that_is_used_again_and_more_arrays_than_it_keeps_parts_of() -> None:
    """Ranks reuse their memory in another order, so a cached part is right only for exactly these addresses."""
    counts = [70_000 + 3 * number for number in range(MAX_CACHED + 3)]

    def program(comm: Communicator) -> list[float]:
        wrong = []
        for turn in range(3):
            arrays = {count: comm.empty((count,), np.float32) for count in counts[:: 1 - 2 * comm.rank]}
            for count in counts * 2:
                arrays[count][:] = own = of_rank(comm.rank + turn, (count,))
                comm.all_reduce_in_place(arrays[count])
                wrong.append(float(np.abs(arrays[count] - comm.all_reduce(own)).max()))
        return wrong

    for wrong in on_ranks(2, program, transport="shm"):
        assert wrong == [0] * len(wrong)


def test_descriptors_are_closed_with_the_communicator() -> None:
    def program(comm: Communicator) -> None:
        comm.all_reduce(np.ones(200_000))
        array = comm.empty((100_000,), "float32")
        array[:] = 1
        comm.all_reduce_in_place(array)

    before = len(list(Path("/proc/self/fd").iterdir()))
    on_ranks(2, program)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


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
            comm.send(large, 1)  # closed at once
            return None
        return comm.recv(np.empty_like(large), 0)

    assert same_bits([on_ranks(2, program)[1], large])


def test_connections_within_a_host_bound_what_is_under_way_and_others_leave_it_to_the_kernel() -> None:
    wmem_max = int(Path("/proc/sys/net/core/wmem_max").read_text())
    with socket.create_server(("0.0.0.0", 0)) as listener:
        for address, bounded in (("127.0.0.1", True), ("127.0.0.2", False)):
            source = ("127.0.0.1", 0)
            with socket.create_connection((address, listener.getsockname()[1]), source_address=source) as connection:
                before = connection.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
                set_options(connection, 1.0)
                after = connection.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
                # Linux doubles the requested size, for its own use
                assert after == (2 * min(IN_FLIGHT_BYTES, wmem_max) if bounded else before)
