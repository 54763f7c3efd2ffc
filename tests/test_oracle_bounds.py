"""The oracle's bounds hold for float32 in random orders."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from oracle_jobs import PROMISED, job_model, moments, one_backward

from ddpcheck.job import Backward, Job, Observe, Operation, OptimizerSpec, Step, ZeroGrad
from ddpcheck.models.spec import mlp
from ddpcheck.oracle import Oracle
from ddpcheck.seeded_values import Array
from ddpcheck_properties.strategies import shards, training_job


@pytest.mark.parametrize("loss", ["linear", "squared_error", "cross_entropy"])
@pytest.mark.parametrize("curve", ["relu", "tanh"])
def test_bounds_hold_in_float32_and_are_tight(curve: str, loss: str) -> None:
    """An independent float32 forward and backward, with sums in random orders, is within the bound, and not far below
    it.
    """
    tightest, loose = np.inf, 2e-4 * (10 if curve == "tanh" else 1) * (10 if loss == "cross_entropy" else 1)
    for seed in range(20):
        model = mlp((3, 5, 4), activation=curve, loss=loss)  # type: ignore[arg-type]
        job = replace(one_backward(model, [4, 4]), seed=seed)
        entries = moments(job, bounds=True)[-1].arrays["gradients"]
        computed = _in_float32(job, curve, loss, np.random.default_rng(seed))
        for name, entry in entries.items():
            assert entry.value.error is not None
            error, bound = abs(computed[name] - entry.value.exact[0]), entry.value.error[0]
            assert (error <= bound).all(), (seed, name)
            if np.isfinite(bound).all() and error.max() > 0:
                tightest = min(tightest, float((bound / np.maximum(error, 1e-12)).min()))
                assert bound.max() < loose * max(abs(entry.value.exact[0]).max(), 0.1)
    assert tightest < 3000


def test_past_the_range_of_the_dtype_there_is_no_bound() -> None:
    """The loss after a step far too large is finite in float64, but float32 has infinite intermediate values."""
    job = one_backward(mlp((3, 5, 4), loss="squared_error"), [4, 4])
    backward = job.operations[1]
    job = replace(job, operations=(ZeroGrad(), backward, Step(), backward), optimizer=OptimizerSpec(lr=1e25))
    loss = moments(job, bounds=True)[3].numbers["loss"]
    assert np.isfinite(loss.exact).all()
    assert loss.error is not None
    assert (loss.exact > np.finfo(np.float32).max).all()
    assert np.isinf(loss.error).all()


def _in_float32(job: Job, curve: str, loss: str, rng: np.random.Generator) -> dict[str, Array]:
    """The mean of two ranks' gradients of a two-layer network, with every matrix product summed in a random order."""
    model = job_model(job)
    assert job.data is not None
    p = job.initial(0)
    inputs, targets = job.data.arrays(model)
    found = []
    for rows in (slice(0, 4), slice(4, 8)):
        x, t = inputs[rows], targets[rows]
        z = _product(x, p["fc1.weight"].T, rng) + p["fc1.bias"]
        a = np.tanh(z) if curve == "tanh" else np.maximum(z, 0)
        y = _product(a, p["fc2.weight"].T, rng) + p["fc2.bias"]
        if loss == "cross_entropy":
            e = np.exp(y - y.max(axis=1, keepdims=True))
            dy = e / e.sum(axis=1, keepdims=True) - np.eye(4, dtype=np.float32)[t]
        else:
            dy = t if loss == "linear" else y - t
        dy = dy / np.float32(4)
        da = _product(dy, p["fc2.weight"], rng)
        dz = da * (1 - a * a) if curve == "tanh" else da * (z > 0)
        found.append(
            {
                "fc1.weight": _product(dz.T, x, rng),
                "fc1.bias": dz.sum(axis=0),
                "fc2.weight": _product(dy.T, a, rng),
                "fc2.bias": dy.sum(axis=0),
            }
        )
    assert all(array.dtype == np.float32 for array in found[0].values())
    return {name: (found[0][name] + found[1][name]) / np.float32(2) for name in found[0]}


def _product(a: Array, b: Array, rng: np.random.Generator) -> Array:
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in rng.permutation(a.shape[1]):
        total = total + a[:, k : k + 1] * b[k : k + 1]
    return total


@pytest.mark.parametrize(
    "spec", [OptimizerSpec(lr=0.05, momentum=0.9, weight_decay=0.1), OptimizerSpec("adam", lr=0.02, eps=0.01)]
)
def test_bounds_of_trajectories_hold_in_float32_and_see_float32_in_float64(spec: OptimizerSpec) -> None:
    """Three steps computed in float32 stay within the float32 bound, and exceed the float64 bound by far."""
    network = pytest.importorskip("ddpcheck_implementations.numpy_network")
    for seed in range(10):
        operations: list[Operation] = []
        for number in range(3):
            operations += [ZeroGrad(), Backward(shards([3], 3 * number)), Step()]
        narrow = training_job(
            1, mlp((2, 4, 2), activation="tanh"), [*operations, Observe(("parameters",))], spec, exact=False, seed=seed
        )
        model = job_model(narrow)
        assert narrow.data is not None
        net = network.Network(model, narrow.initial(0))
        optimizer = network.make_optimizer(spec, net.parameters)
        inputs, targets = narrow.data.arrays(model)
        for number in range(3):
            rows = slice(3 * number, 3 * number + 3)
            found: dict[str, Array] = {}
            net.backward(inputs[rows], targets[rows], (), found.__setitem__)
            optimizer.step(found)
        entries = moments(narrow, bounds=True)[-1].arrays["parameters"]
        for name, entry in entries.items():
            assert entry.value.error is not None
            error = abs(net.parameters[name] - entry.value.exact[0])
            assert (error <= entry.value.error[0]).all(), (seed, name)


def test_a_relu_of_doubtful_sign_has_no_bound() -> None:
    job = one_backward(mlp((1, 1, 1)), [1])
    oracle = Oracle(job, PROMISED, bounds=True)
    before = oracle.weights.tensors["fc1.weight"].exact[0] @ oracle.case.data[0][0]
    oracle.weights.tensors["fc1.bias"] = replace(oracle.weights.tensors["fc1.bias"], exact=-before[None] * (1 + 1e-9))
    entries = list(oracle.walk())[-1].arrays["gradients"]
    errors = [entry.value.error for entry in entries.values()]
    assert all(error is not None and np.isinf(error).all() for error in errors)
