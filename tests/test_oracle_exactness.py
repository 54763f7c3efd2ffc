"""Exact Jobs: every order of additions, and every way to divide, gives the same bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from oracle_jobs import PROMISED, job_model, moments

from ddpcheck.job import Backward, Observe, Operation, OptimizerSpec, Step, ZeroGrad
from ddpcheck.models.spec import Linear, ModelSpec, mlp
from ddpcheck.oracle import is_exact
from ddpcheck.oracle.exactness import SIGNIFICAND, largest_integer, reciprocal_is_exact
from ddpcheck.seeded_values import Array
from ddpcheck_properties.strategies import shards, training_job


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("world_size", range(1, 9))
def test_every_strategy_gives_the_same_bits(world_size: int, dtype: str) -> None:
    """Sum then divide, divide then sum, multiply by 1/W before or after; sums in rank order, reversed, and as a
    tree.
    """
    kind = np.dtype(dtype).type
    rng = np.random.default_rng(world_size)
    largest = 2 ** SIGNIFICAND[dtype] // world_size**2
    local = [(rng.integers(-largest, largest, 20_000) * world_size).astype(dtype) for _ in range(world_size)]
    exact = np.sum([array.astype(np.int64) for array in local], axis=0) // world_size
    inverse = kind(1) / kind(world_size)
    strategies = {
        "sum, divide": [order(local) / kind(world_size) for order in (_in_order, _reversed, _tree)],
        "divide, sum": [order([a / kind(world_size) for a in local]) for order in (_in_order, _reversed, _tree)],
        "sum, multiply": [order(local) * inverse for order in (_in_order, _reversed, _tree)],
        "multiply, sum": [order([a * inverse for a in local]) for order in (_in_order, _reversed, _tree)],
    }
    for name, results in strategies.items():
        if "multiply" in name and not reciprocal_is_exact(world_size, dtype):
            assert any(not np.array_equal(result, exact) for result in results)  # W = 7 in float32: not called exact
            continue
        for result in results:
            assert result.dtype == dtype
            np.testing.assert_array_equal(result, exact.astype(dtype), err_msg=name)


def test_the_reciprocal_is_exact_on_all_multiples_but_for_seven() -> None:
    for world_size in range(1, 9):
        multiples = np.arange(1, 2**24 // world_size + 1, dtype=np.float32)
        same = np.array_equal(
            (multiples * np.float32(world_size)) * (np.float32(1) / np.float32(world_size)), multiples
        )
        assert same == reciprocal_is_exact(world_size, "float32") == (world_size != 7)
        assert reciprocal_is_exact(world_size, "float64")


def _in_order(arrays: list[Array]) -> Array:
    total = arrays[0]
    for array in arrays[1:]:
        total = total + array
    return total


def _reversed(arrays: list[Array]) -> Array:
    return _in_order(arrays[::-1])


def _tree(arrays: list[Array]) -> Array:
    while len(arrays) > 1:
        pairs = [arrays[i] + arrays[i + 1] for i in range(0, len(arrays) - 1, 2)]
        arrays = pairs + ([arrays[-1]] if len(arrays) % 2 else [])
    return arrays[0]


def test_reduced_gradients_that_are_reduced_again_stay_exact() -> None:
    """131 = 393 / 3 is not a multiple of 3. Some implementations reduce it once more, and 131 * fl(1/3) * 3 rounds. So
    scale by W^2.
    """
    twice = training_job(3, mlp((2, 2)), [Backward(shards([1] * 3)), Backward(shards([1] * 3, 3))])
    once = training_job(3, mlp((2, 2)), [Backward(shards([1] * 3)), ZeroGrad(), Backward(shards([1] * 3, 3))])
    assert (job_model(twice).loss_scale, job_model(once).loss_scale) == (9.0, 3.0)
    assert not is_exact(replace(twice, model=job_model(once)), PROMISED)


def test_no_number_of_an_exact_job_is_larger_than_its_bound() -> None:
    operations: list[Operation] = []
    for number in range(2):
        operations += [
            ZeroGrad(),
            Backward(shards([4, 4], 8 * number)),
            Observe(("gradients",)),
            Step(),
            Observe(("parameters",)),
        ]
    job = training_job(2, replace(mlp((3, 4, 2), loss="linear"), dtype="float64"), operations, OptimizerSpec(lr=1.0))
    assert is_exact(job, PROMISED)
    for moment in moments(job):
        for entries in moment.arrays.values():
            for entry in entries.values():
                assert abs(entry.value.exact).max() * job.world_size <= largest_integer(job)
                assert np.array_equal(entry.value.exact, np.rint(entry.value.exact))


@pytest.mark.parametrize(
    "change",
    [
        {"data": None},
        {"model": mlp((2, 2), activation="tanh", loss="cross_entropy", loss_scale=4.0)},
        {"model": mlp((2, 2), loss_scale=3.0)},
        {"operations": (Backward(((0, 1, 2), (3, 4, 5))),)},
        {"operations": (Backward(((0,), (1,))), Step()), "optimizer": OptimizerSpec(lr=0.5)},
    ],
)
def test_jobs_that_are_not_exact(change: dict[str, object]) -> None:
    job = training_job(2, mlp((2, 2)), [Backward(((0, 1), (2, 3))), ZeroGrad(), Backward(((4, 5), (0, 1)))])
    assert is_exact(job, PROMISED)
    if change == {"data": None}:
        change = {"operations": (), "data": None}
    assert not is_exact(replace(job, **change), PROMISED)  # type: ignore[arg-type]


@pytest.mark.parametrize("penalty", [0.0, 2.0])
def test_a_job_whose_numbers_outgrow_all_floats_is_not_exact(penalty: float) -> None:
    layers = tuple(Linear(f"fc{number}", 4, 4, penalty=penalty) for number in range(8))
    operations = [ZeroGrad(), Backward(shards([2, 2])), Step()] * 12
    job = training_job(
        2, ModelSpec(layers, "squared_error", dtype="float64"), operations, OptimizerSpec(lr=1.0), exact=True
    )
    assert not is_exact(job, PROMISED)
