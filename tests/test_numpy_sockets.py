"""The TCP communicator: values, bits, bytes on the wire, and the order of operations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import socket_ranks
from socket_ranks import on_ranks

from ddpcheck.values import Array, key_of, numbers
from ddpcheck_implementations.numpy_sockets.communicator import Communicator

REDUCED = {
    "sum": lambda arrays: sum(arrays[1:], arrays[0]),
    "mean": lambda arrays: sum(arrays[1:], arrays[0]) / len(arrays),
    "min": lambda arrays: np.minimum.reduce(arrays),
    "max": lambda arrays: np.maximum.reduce(arrays),
    "prod": lambda arrays: np.multiply.reduce(arrays),
}
PATHS = [0, 1 << 30]
"""direct_bytes: all through the ring, or all straight from rank to rank."""


@pytest.fixture(autouse=True, params=socket_ranks.TRANSPORTS)
def _transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_ranks, "transport", request.param)


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
    """One rank's array may be where others reach it while another rank's is not."""

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
            comm.send(large, 1)  # and is closed at once
            return None
        return comm.recv(np.empty_like(large), 0)

    assert same_bits([on_ranks(2, program)[1], large])
