"""Every algorithm: values, and the same bits on all ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rank_arrays import REDUCED, of_rank, same_bits
from socket_ranks import on_ranks

from ddpcheck.seeded_values import Array, key_of, numbers
from ddpcheck_implementations.numpy_sockets.algorithms.choice import ALGORITHMS, Route
from ddpcheck_implementations.numpy_sockets.communicator import Communicator

WAYS: dict[Route, dict[str, str]] = {
    "sockets": {"transport": "tcp"},
    "memory": {"transport": "shm"},
    "hosts": {"transport": "auto", "hosts": "1,2"},
}
PATHS = [{"transport": "unix"}, {"transport": "auto"}]
PATHS += [{**options, "algorithm": name} for way, options in WAYS.items() for name in ALGORITHMS[way]]
each_path = pytest.mark.parametrize("path", PATHS, ids=lambda path: "-".join(path.values()))


@each_path
@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5])
def test_collectives_at_sizes_around_the_world_size(world_size: int, path: dict[str, str]) -> None:
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

    results = on_ranks(world_size, program, **path)
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


@each_path
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64"])
def test_every_dtype_stays_what_it_is(dtype: str, path: dict[str, str]) -> None:
    ops = [op for op in REDUCED if op != "mean" or dtype.startswith("float")]
    results = on_ranks(
        3,
        lambda comm: [comm.all_reduce(of_rank(comm.rank, (7,), dtype), op) for op in ops],
        **path,
    )
    arrays = [of_rank(rank, (7,), dtype) for rank in range(3)]
    for place, op in enumerate(ops):
        assert same_bits([*(result[place] for result in results), REDUCED[op](arrays).astype(dtype)]), op


@each_path
def test_memory_layout_does_not_matter(path: dict[str, str]) -> None:
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

    zero, one = on_ranks(2, program, **path)
    wanted = [plain[0] + plain[1]] * 4 + [plain[1]] * 4 + [np.stack(plain)] * 4
    assert all(same_bits([got, want]) for got, want in zip(zero, wanted + [plain[1]] * 4, strict=True))
    assert all(same_bits([got, want]) for got, want in zip(one, wanted, strict=True))


@each_path
@pytest.mark.parametrize("holder", [0, 1, 2])
def test_min_and_max_propagate_nan_whoever_holds_it(holder: int, path: dict[str, str]) -> None:
    def program(comm: Communicator) -> list[Array]:
        own = np.array([np.nan if comm.rank == holder else comm.rank + 1.0, comm.rank + 1.0, 2.0])
        return [comm.all_reduce(own, "min"), comm.all_reduce(own, "max")]

    for low, high in on_ranks(3, program, **path):
        np.testing.assert_array_equal(low, [np.nan, 1, 2])
        np.testing.assert_array_equal(high, [np.nan, 3, 2])


def test_fast_rank_does_not_overwrite_data_still_read() -> None:
    def program(comm: Communicator) -> list[float]:
        return [float(comm.all_reduce(np.full(2, step * 3.0 + comm.rank))[1]) for step in range(100)]

    want = [step * 9.0 + 3 for step in range(100)]
    assert on_ranks(3, program, transport="shm") == [want] * 3


def test_an_unknown_algorithm_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no algorithm 'rung': choose one of direct, .*ring"):
        on_ranks(2, lambda comm: comm.rank, algorithm="rung")


@pytest.mark.parametrize("world_size", [2, 3, 4, 5])
@each_path
def test_real_numbers_have_the_same_bits_on_all_ranks_and_each_time(world_size: int, path: dict[str, str]) -> None:
    """For arrays larger than the kernel's buffers."""
    own = [numbers((500_003,), "float32", "real", key_of(0, rank)) for rank in range(world_size)]

    def program(comm: Communicator) -> list[Array]:
        return [comm.all_reduce(own[comm.rank]), comm.all_reduce(own[comm.rank])]

    results = on_ranks(world_size, program, **path)
    assert same_bits([array for result in results for array in result])
    np.testing.assert_allclose(results[0][0], np.sum(own, axis=0, dtype=np.float64), atol=1e-5)


@pytest.mark.parametrize("world_size", [2, 3, 4])
@each_path
def test_minimum_of_signed_zeros_is_equal_on_all_ranks(world_size: int, path: dict[str, str]) -> None:
    def program(comm: Communicator) -> list[Array]:
        own = np.array([0.0, -0.0] * 4) * (-1.0) ** comm.rank
        return [comm.all_reduce(own, op) for op in ("min", "max")]

    results = on_ranks(world_size, program, **path)
    assert all(same_bits([result[place] for result in results]) for place in range(2))
