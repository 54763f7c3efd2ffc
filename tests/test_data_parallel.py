"""The data-parallel engine of the NumPy references over real sockets: contents, times and number of reductions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from socket_ranks import on_ranks

from ddpcheck.contract.adapter import Batch
from ddpcheck.job import OptimizerSpec
from ddpcheck.models.spec import BatchNorm, Linear, ModelSpec, mlp
from ddpcheck.seeded_values import Array, key_of, numbers
from ddpcheck_implementations.data_parallel import numpy_facets
from ddpcheck_implementations.data_parallel.flat_arrays import FlatBuffer
from ddpcheck_implementations.data_parallel.replica import DataParallel
from ddpcheck_implementations.numpy_network import Network
from ddpcheck_implementations.numpy_sockets.communicator import Communicator

TYPICAL = mlp((3, 2), dtype="float64")
BRANCHES = ModelSpec((Linear("a", 2, 2), Linear("b", 2, 2, branch="b"), Linear("c", 2, 2, branch="c")), dtype="float64")
NORMED = ModelSpec((BatchNorm("n", 2), Linear("a", 2, 2)), dtype="float64")


def batch(model: ModelSpec, rank: int, seed: int = 0, branches: tuple[str, ...] = ()) -> Batch:
    """Two samples that no other rank has; lattice values, so that sums are exact."""
    key = key_of(seed, rank)
    inputs = numbers((2, model.input_features), model.dtype, "lattice", key)
    return Batch(inputs, numbers((2, model.output_features), model.dtype, "lattice", key_of(key)), branches)


def local(model: ModelSpec, own: Batch) -> dict[str, Array]:
    """The gradient of one batch at rank 0's initial values."""
    gradients: dict[str, Any] = {}
    Network(model, model.initial(0, "lattice")).backward(own.inputs, own.targets, own.branches, gradients.__setitem__)
    return {name: gradient for name, gradient in gradients.items() if gradient is not None}


def replicas(
    world_size: int, model: ModelSpec, program: Callable[[DataParallel, Communicator], Any], **optimizer: Any
) -> list[Any]:
    """The results of `program` on every rank; ranks start from different values."""

    def rank(comm: Communicator) -> Any:
        make = numpy_facets(comm, comm.rank, comm.world_size).make_replica
        assert make is not None
        replica = make(model, model.initial(comm.rank, "lattice"), OptimizerSpec(**optimizer), {})
        assert isinstance(replica, DataParallel)
        return program(replica, comm)

    return on_ranks(world_size, rank)


def same(one: Any, other: Any) -> bool:
    return one.keys() == other.keys() and all(
        (one[name] is None and other[name] is None) or np.array_equal(one[name], other[name]) for name in one
    )


def mean(gradients: list[dict[str, Array]]) -> dict[str, Array]:
    return {name: np.add.reduce([g[name] for g in gradients]) / len(gradients) for name in gradients[0]}


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_all_start_as_rank_0_and_get_the_mean_gradient(world_size: int) -> None:
    def program(replica: DataParallel, comm: Communicator) -> Any:
        start = replica.parameters()
        loss = replica.backward(batch(TYPICAL, comm.rank))
        gradients = replica.gradients()
        replica.step()
        return start, loss, gradients, replica.parameters()

    results = replicas(world_size, TYPICAL, program, lr=0.5)
    want = mean([local(TYPICAL, batch(TYPICAL, rank)) for rank in range(world_size)])
    initial = TYPICAL.initial(0, "lattice")
    for start, _, gradients, after in results:
        assert same(start, initial)
        assert same(gradients, want)
        assert same(after, {name: initial[name] - 0.5 * want[name] for name in initial})
    assert len({loss for _, loss, _, _ in results}) == world_size  # each rank's own


def test_every_backward_counts_once_whatever_of_them_synchronise() -> None:
    pattern = [False, True, True, False, False, True]

    def program(replica: DataParallel, comm: Communicator) -> Any:
        seen = []
        for micro, synchronised in enumerate(pattern):
            own = batch(TYPICAL, comm.rank, micro)
            if synchronised:
                replica.backward(own)
            else:
                with replica.no_sync():
                    replica.backward(own)
            seen.append(replica.gradients())
        replica.zero_grad()
        return [*seen, replica.gradients()]

    results = replicas(2, TYPICAL, program)
    locals_ = [[local(TYPICAL, batch(TYPICAL, rank, micro)) for micro in range(len(pattern))] for rank in range(2)]
    for rank in range(2):
        synced = {name: np.zeros_like(array) for name, array in locals_[0][0].items()}
        pending = [synced, synced]
        for micro, synchronised in enumerate(pattern):
            pending = [{name: pending[r][name] + locals_[r][micro][name] for name in synced} for r in range(2)]
            if synchronised:
                synced = {name: synced[name] + mean(pending)[name] for name in synced}
                pending = [{name: 0 * synced[name] for name in synced}] * 2
            want = {name: synced[name] + pending[rank][name] for name in synced}
            assert same(results[rank][micro], want), micro
        assert set(results[rank][-1].values()) == {None}


def test_no_sync_neither_communicates_nor_outlives_an_exception() -> None:
    def program(replica: DataParallel, comm: Communicator) -> Any:
        before = comm.traffic.messages
        with replica.no_sync(), replica.no_sync():
            replica.backward(batch(NORMED, comm.rank))
        silent = comm.traffic.messages == before
        with pytest.raises(ZeroDivisionError), replica.no_sync():
            raise ZeroDivisionError
        replica.backward(batch(NORMED, comm.rank))
        return silent, replica.gradients()

    (silent, one), (also_silent, other) = replicas(2, NORMED, program)
    assert silent
    assert also_silent
    assert same(one, other)


def test_a_parameter_used_on_some_ranks_is_shared_and_one_used_on_none_stays_none() -> None:
    def program(replica: DataParallel, comm: Communicator) -> Any:
        own = batch(BRANCHES, comm.rank, branches=("b",) if comm.rank == 1 else ())
        replica.backward(own)
        gradients = replica.gradients()
        replica.step()
        return gradients, replica.parameters()

    results = replicas(3, BRANCHES, program, momentum=0.9, weight_decay=0.5)
    own = local(BRANCHES, batch(BRANCHES, 1, branches=("b",)))
    initial = BRANCHES.initial(0, "lattice")
    for gradients, after in results:
        assert gradients["c.weight"] is None
        assert gradients["c.bias"] is None
        assert np.array_equal(gradients["b.weight"], own["b.weight"] / 3)
        assert np.array_equal(after["c.weight"], initial["c.weight"])


def test_parameter_used_only_inside_no_sync_is_reduced() -> None:
    def program(replica: DataParallel, comm: Communicator) -> Any:
        with replica.no_sync():
            replica.backward(batch(BRANCHES, comm.rank, 0, ("b",)))
        replica.backward(batch(BRANCHES, comm.rank, 1, ("c",)))
        return replica.gradients()

    one, other = replicas(2, BRANCHES, program)
    assert same(one, other)
    want = mean([local(BRANCHES, batch(BRANCHES, rank, 0, ("b",))) for rank in range(2)])
    assert np.array_equal(one["b.weight"], want["b.weight"])


def test_rank_0s_buffers_go_to_all_before_each_training_forward() -> None:
    def program(replica: DataParallel, comm: Communicator) -> Any:
        at_start = replica.buffers()
        replica.backward(batch(NORMED, comm.rank))
        after_one = replica.buffers()
        inputs = batch(NORMED, comm.rank, 1)
        replica.backward(Batch(inputs.inputs[:0], inputs.targets[:0]) if comm.rank else inputs)
        return at_start, after_one, replica.buffers()

    zero, one = replicas(2, NORMED, program)
    initial = NORMED.initial(0, "lattice")
    assert same(zero[0], one[0])
    assert all(np.array_equal(one[0][name], initial[name]) for name in one[0])
    assert not np.array_equal(zero[1]["n.running_mean"], one[1]["n.running_mean"])
    assert same(one[2], zero[1])  # it had no rows then, so it still has the values that rank 0 sent
    assert zero[2]["n.num_batches_tracked"] == initial["n.num_batches_tracked"] + 2
    assert zero[2]["n.num_batches_tracked"].dtype == np.int64


@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_clip_uses_the_norm_of_the_mean_gradient(max_norm: float) -> None:
    def program(replica: DataParallel, comm: Communicator) -> Any:
        replica.backward(batch(TYPICAL, comm.rank))
        return replica.clip(max_norm), replica.gradients()

    want = mean([local(TYPICAL, batch(TYPICAL, rank)) for rank in range(2)])
    norm = math.sqrt(sum(float((gradient**2).sum()) for gradient in want.values()))
    for got, gradients in replicas(2, TYPICAL, program):
        assert got == pytest.approx(norm, rel=1e-15)
        for name, gradient in gradients.items():
            np.testing.assert_allclose(gradient, want[name] * min(1, max_norm / norm), rtol=1e-14)


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_a_loaded_state_continues_the_same_training(name: str) -> None:
    spec: dict[str, Any] = {"name": name, "momentum": 0.9}

    def train(replica: DataParallel, rank: int, steps: range) -> None:
        for step in steps:
            replica.zero_grad()
            replica.backward(batch(NORMED, rank, step))
            replica.step()

    def program(replica: DataParallel, comm: Communicator) -> Any:
        train(replica, comm.rank, range(2))
        state = replica.state()
        make = numpy_facets(comm, comm.rank, 2).make_replica
        assert make is not None
        resumed = make(NORMED, NORMED.initial(9, "real"), OptimizerSpec(**spec), {})
        resumed.load_state(state)
        train(replica, comm.rank, range(2, 4))
        train(resumed, comm.rank, range(2, 4))  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"a\.weight"):
            resumed.load_state({key: value for key, value in state.items() if key != "a.weight"})
        with pytest.raises(ValueError, match="stray"):
            resumed.load_state({**state, "stray": np.zeros(1)})
        return replica.state(), resumed.state()

    for straight, resumed in replicas(2, NORMED, program, **spec):
        assert same(straight, resumed)


def test_reads_are_copies_and_predict_is_local() -> None:
    def program(replica: DataParallel, comm: Communicator) -> Any:
        replica.backward(batch(TYPICAL, comm.rank))
        for read in (replica.gradients, replica.parameters, replica.buffers, replica.state):
            for array in read().values():  # type: ignore[operator]
                array += 1
        if comm.rank == 0:
            outputs = replica.predict(batch(TYPICAL, 0))
            assert outputs.shape == (2, 2)
        return replica.gradients(), replica.parameters()

    (gradients, parameters), _ = replicas(2, TYPICAL, program)
    assert same(gradients, mean([local(TYPICAL, batch(TYPICAL, rank)) for rank in range(2)]))
    assert same(parameters, TYPICAL.initial(0, "lattice"))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"bucket_cap": 1}, "bucket_cap: this implementation has bucket_cap_mb and overlap"),
        ({"bucket_cap_mb": 0}, "bucket_cap_mb must be positive"),
        ({"bucket_cap_mb": "25"}, "bucket_cap_mb must be a number"),
        ({"overlap": "always"}, "on, off or auto"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], says: str) -> None:
    make = numpy_facets(None, 0, 1).make_replica  # type: ignore[arg-type]
    assert make is not None
    with pytest.raises(ValueError, match=says):
        make(TYPICAL, TYPICAL.initial(0, "lattice"), OptimizerSpec(), options)


def test_named_models_are_refused() -> None:
    make = numpy_facets(None, 0, 1).make_replica  # type: ignore[arg-type]
    assert make is not None
    with pytest.raises(ValueError, match="resnet"):
        make("resnet", {}, OptimizerSpec(), {})


def test_a_flat_buffer_keeps_dtypes_and_shapes() -> None:
    arrays: dict[str, Array] = {
        "a": numbers((2, 3), "float32", "real", 1),
        "count": np.array(7, np.int64),
        "none": np.zeros((0, 2), np.float32),
        "b": np.asfortranarray(numbers((3, 2), "float32", "real", 2)),
    }
    flat = FlatBuffer(arrays)
    packed = flat.pack(arrays)
    assert sorted(part.dtype.name for part in packed) == ["float32", "int64"]
    assert same(flat.unpack(packed), arrays)
