"""Weights of samples: losses and gradients of the oracle, NumPy and torch match formulas, with and without ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from oracle_jobs import moments

from ddpcheck.contract import TYPICAL, Capabilities
from ddpcheck.contract.adapter import Batch
from ddpcheck.job import Backward, Job, Observe, ZeroGrad
from ddpcheck.models.spec import ModelSpec, mlp
from ddpcheck.oracle import Oracle, is_exact
from ddpcheck.oracle.network import evaluate
from ddpcheck.seeded_values import Array
from ddpcheck_implementations.numpy_network import Network
from ddpcheck_properties.replicas.sample_weights import accumulated, masked, weighted_steps
from ddpcheck_properties.strategies import shards, training_job

LOSSES = ["linear", "squared_error", "cross_entropy"]
WEIGHTS = ((0.5, 2.0, 0.0), (0.0, 0.0, 0.0), (1.0, 0.25, 3.0))
BY_WEIGHT = TYPICAL.of_facets("replica").but(sample_weights="by_weight")
EQUAL_RANKS = TYPICAL.of_facets("replica").but(sample_weights="equal_ranks")


def model_of(loss: str) -> ModelSpec:
    return mlp((3, 4, 3), activation="tanh", loss=loss, loss_scale=1.5, dtype="float64")  # type: ignore[arg-type]


def job_of(model: ModelSpec, weights: tuple[tuple[float, ...], ...] = WEIGHTS) -> Job:
    sizes = list(map(len, weights))
    operations = [ZeroGrad(), Backward(shards(sizes), weights=weights), Observe(("gradients",))]
    return replace(training_job(len(sizes), model, operations, exact=False), model=model)


def gradients(job: Job, promised: Capabilities) -> dict[str, Array]:
    return {name: entry.value.exact[0] for name, entry in moments(job, promised)[-1].arrays["gradients"].items()}


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_of_the_oracle_are_those_of_numerical_differences(loss: str) -> None:
    oracle = Oracle(job_of(model_of(loss)), BY_WEIGHT)
    shards_ = oracle.case.shards(shards([3, 3, 3]), weights=WEIGHTS)
    tensors = {name: value.exact for name, value in oracle.weights.tensors.items()}
    found = evaluate(oracle.case.model, tensors, {}, shards_)
    assert found.losses[1] == 0
    for name, array in tensors.items():
        assert not found.gradients[name][1].any()
        for index in np.ndindex(*array.shape):
            losses = []
            for step in (-1e-6, 1e-6):
                moved = array.copy()
                moved[index] += step
                losses.append(evaluate(oracle.case.model, {**tensors, name: moved}, {}, shards_).losses.sum())
            assert found.gradients[name][index] == pytest.approx((losses[1] - losses[0]) / 2e-6, abs=2e-7)


@pytest.mark.parametrize("loss", LOSSES)
def test_ranks_that_count_by_weight_find_what_one_process_finds(loss: str) -> None:
    model = model_of(loss)
    whole = gradients(job_of(model, (sum(WEIGHTS, ()),)), BY_WEIGHT)
    for name, gradient in gradients(job_of(model), BY_WEIGHT).items():
        np.testing.assert_allclose(gradient, whole[name], rtol=1e-12, atol=1e-15)


def test_ranks_that_count_equally_find_the_mean_of_their_own() -> None:
    model = model_of("squared_error")
    job = job_of(model)
    found = gradients(job, EQUAL_RANKS)
    oracle = Oracle(job, EQUAL_RANKS)
    tensors = {name: value.exact for name, value in oracle.weights.tensors.items()}
    own = evaluate(model, tensors, {}, oracle.case.shards(shards([3, 3, 3]), weights=WEIGHTS)).gradients
    for name, gradient in found.items():
        np.testing.assert_allclose(gradient, own[name].mean(axis=0), rtol=1e-12)
        assert not np.allclose(gradient, gradients(job, BY_WEIGHT)[name])


def test_weights_of_one_change_nothing() -> None:
    weighed = job_of(model_of("cross_entropy"), ((1.0,) * 3,) * 3)
    plain = replace(weighed, operations=tuple(_without(operation) for operation in weighed.operations))
    for promised in (BY_WEIGHT, EQUAL_RANKS):
        for name, gradient in gradients(weighed, promised).items():
            np.testing.assert_allclose(gradient, gradients(plain, promised)[name], rtol=1e-12, atol=1e-15)


def _without(operation: Any) -> Any:
    return replace(operation, weights=()) if isinstance(operation, Backward) else operation


@pytest.mark.parametrize("promised", [BY_WEIGHT, EQUAL_RANKS], ids=lambda promised: promised.replica.sample_weights)
def test_where_nothing_has_weight_all_is_zero(promised: Capabilities) -> None:
    job = job_of(model_of("squared_error"), ((0.0,) * 3,) * 2)
    assert moments(job, promised)[1].numbers["loss"].exact.tolist() == [0, 0]
    assert not any(gradient.any() for gradient in gradients(job, promised).values())


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_network_has_the_weighted_mean_of_its_samples(loss: str, weights: tuple[float, ...]) -> None:
    model = model_of(loss)
    network = Network(model, model.initial(3, "real"))
    inputs, targets = _data(model)

    def run(rows: slice, given: Array | None) -> tuple[float, dict[str, Array]]:
        found: dict[str, Any] = {}
        told = network.backward(inputs[rows], targets[rows], (), found.__setitem__, weights=given)
        return told, found

    check_weighted_mean(weights, run)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_module_of_torch_has_the_weighted_mean_of_its_samples(loss: str, weights: tuple[float, ...]) -> None:
    pytest.importorskip("torch")
    from torch_replicas import replica_of

    model = model_of(loss)
    replica = replica_of(model, model.initial(3, "real"))
    inputs, targets = _data(model)

    def run(rows: slice, given: Array | None) -> tuple[float, Any]:
        replica.zero_grad()
        return replica.backward(Batch(inputs[rows], targets[rows], weights=given)), replica.gradients()

    check_weighted_mean(weights, run)


def check_weighted_mean(weights: tuple[float, ...], run: Any) -> None:
    """run: loss and gradients of some of three samples, with or without weights."""
    loss, found = run(slice(0, 3), np.array(weights))
    alone = [run(slice(row, row + 1), None) for row in range(3)]
    shares = np.array(weights) / (sum(weights) or 1.0)
    assert loss == pytest.approx(sum(share * one for share, (one, _) in zip(shares, alone, strict=True)), rel=1e-12)
    for name, gradient in found.items():
        expected = sum(share * one[name] for share, (_, one) in zip(shares, alone, strict=True))
        np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-15)


def _data(model: ModelSpec) -> tuple[Array, Array]:
    data = job_of(model).data
    assert data is not None
    return data.arrays(model)


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5])
def test_jobs_tell_ranks_that_count_equally_from_those_that_do_not(world_size: int) -> None:
    for job in (weighted_steps(world_size), masked(world_size), accumulated(world_size, no_sync=True)):
        assert not is_exact(job, BY_WEIGHT)
        looks = [
            moment.arrays["gradients"]
            for promised in (BY_WEIGHT, EQUAL_RANKS)
            for moment in moments(job, promised, bounds=True)
            if "gradients" in moment.arrays
        ]
        half = len(looks) // 2
        apart = [
            not np.allclose(entry.value.exact, equal[name].value.exact, rtol=1e-3)
            for weighed, equal in zip(looks[:half], looks[half:], strict=True)
            for name, entry in weighed.items()
        ]
        assert any(apart) == (world_size > 1)
        assert all(np.isfinite(np.asarray(entry.value.error)).all() for look in looks for entry in look.values())


@pytest.mark.parametrize(
    ("weights", "second", "says"),
    [
        (((1.0, 1.0),), (), "one weight for each sample"),
        (((1.0, 1.0), (1.0,)), (), "one weight for each sample"),
        (((1.0, 1.0), (1.0, -0.5)), (), "negative"),
        (((1.0, 1.0), (1.0, float("nan"))), (), "not finite"),
        (((1.0, 1.0), (1.0, 1.0)), ((0,), (1,)), "two forward passes"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weights: Any, second: Any, says: str) -> None:
    job = job_of(model_of("linear"), ((1.0, 1.0), (1.0, 1.0)))
    with pytest.raises(ValueError, match=says):
        Job(2, (Backward(shards([2, 2]), weights=weights, second=second),), job.model, data=job.data)
