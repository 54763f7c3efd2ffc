"""Auxiliary terms of a loss: oracle, NumPy and torch agree with numerical differences, and Jobs show wrong terms."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from in_threads import ThreadedSession
from oracle_jobs import PROMISED, moments, one_backward

from ddpcheck.contract import TYPICAL
from ddpcheck.contract.adapter import Batch
from ddpcheck.job import Backward, DataSpec, Job
from ddpcheck.models.spec import Activation, Activity, Embedding, Head, Layer, Linear, ModelSpec
from ddpcheck.oracle import Oracle, is_exact
from ddpcheck.oracle.auxiliary_terms import terms_of
from ddpcheck.oracle.network import Shards, evaluate
from ddpcheck.seeded_values import Array
from ddpcheck_implementations.faulty import base
from ddpcheck_implementations.faulty.replicas import unusual_terms
from ddpcheck_implementations.numpy_network import Network
from ddpcheck_properties.replicas import auxiliary_terms
from ddpcheck_properties.replicas.reduction_comparison import local_then_synchronised, reduction_is_tight
from ddpcheck_properties.strategies import shards, training_job

LOSSES = ["linear", "squared_error", "cross_entropy"]
WEIGHTS = [None, (1.0, 0.0, 2.5), (0.0, 0.0, 0.0)]
EVERY_TERM: tuple[Layer, ...] = (
    Embedding("embedding", 5, 3),
    Linear("fc1", 3, 4, penalty=0.5),
    Head("early", 4, 3, -0.25),
    Activation("tanh"),
    Activity(0.75),
    Linear("frozen", 4, 4, penalty=2.0, frozen=True),
    Linear("tied", 4, 4, uses="frozen"),
    Activity(0.1),
    Head("late", 4, 3, 0.5, bias=False),
    Linear("fc2", 4, 3, penalty=0.25),
)
CHAINS = [auxiliary_terms._penalised, auxiliary_terms._active, auxiliary_terms._deeply_supervised]


def model_of(loss: str) -> ModelSpec:
    return ModelSpec(EVERY_TERM, loss, 1.5, "float64")  # type: ignore[arg-type]  # one of LOSSES


def walked(loss: str) -> tuple[Oracle, Job]:
    job = replace(training_job(2, model_of(loss), [Backward(shards([3, 0]))], exact=False), model=model_of(loss))
    return Oracle(job, PROMISED), job


def found_by_oracle(oracle: Oracle, weights: tuple[float, ...] | None) -> tuple[float, dict[str, Array]]:
    tensors, shards_ = _tensors(oracle), oracle.case.shards(shards([3, 0]))
    weighing = None if weights is None else np.array([weights, (0.0,) * 3])
    found = evaluate(oracle.case.model, *_apart(oracle, tensors), replace(shards_, weights=weighing))
    assert found.losses[1] == 0
    assert not any(gradient[1].any() for gradient in found.gradients.values())
    return float(found.losses[0]), {name: gradient[0] for name, gradient in found.gradients.items()}


def _tensors(oracle: Oracle) -> dict[str, Array]:
    return {name: value.exact for name, value in oracle.weights.tensors.items()}


def _apart(oracle: Oracle, tensors: dict[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    learned = {name: tensors[name] for name in oracle.learned}
    return learned, {name: array for name, array in tensors.items() if name not in learned}


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_of_the_oracle_are_those_of_numerical_differences(loss: str) -> None:
    oracle, _ = walked(loss)
    _, found = found_by_oracle(oracle, None)
    learned, fixed = _apart(oracle, _tensors(oracle))
    shards_: Shards = oracle.case.shards(shards([3, 0]))
    for name, array in learned.items():
        for index in np.ndindex(*array.shape[1:]):
            losses = []
            for step in (-1e-6, 1e-6):
                moved = array.copy()
                moved[(0, *index)] += step
                losses.append(evaluate(oracle.case.model, {**learned, name: moved}, fixed, shards_).losses[0])
            assert found[name][index] == pytest.approx((losses[1] - losses[0]) / 2e-6, abs=2e-7)


def test_the_loss_is_that_of_the_specification() -> None:
    layers = (Linear("fc", 2, 2, bias=False, penalty=3.0), Activity(0.5), Head("head", 2, 2, 2.0, bias=False))
    model = ModelSpec(layers, "linear", 10.0, "float64")
    w, h = np.array([[1.0, 2.0], [0.0, -1.0]]), np.array([[1.0, 1.0], [2.0, 0.0]])
    x, t = np.array([[1.0, 1.0], [0.0, 2.0]]), np.array([[1.0, 0.0], [-1.0, 1.0]])
    y = x @ w.T
    expected = 10 * (((y * t).sum() + 0.25 * (y**2).sum() + 2 * ((y @ h.T) * t).sum()) / 2 + 1.5 * (w**2).sum())
    network = Network(model, {"fc.weight": w, "head.weight": h})
    assert network.backward(x, t, (), lambda *_: None) == pytest.approx(expected, rel=1e-14)
    found = evaluate(
        model,
        {"fc.weight": w[None], "head.weight": h[None]},
        {},
        Shards(x[None], t[None], np.array([2]), {}),
    )
    assert found.losses[0] == pytest.approx(expected, rel=1e-14)
    np.testing.assert_allclose(network.predict(x, ()), y)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_network_has_the_terms_of_the_oracle(loss: str, weights: tuple[float, ...] | None) -> None:
    oracle, job = walked(loss)
    network = Network(model_of(loss), job.initial(0))
    assert job.data is not None
    inputs, targets = job.data.arrays(model_of(loss))
    found: dict[str, Any] = {}
    weighing = None if weights is None else np.array(weights)
    told = network.backward(inputs[:3], targets[:3], (), found.__setitem__, weights=weighing)
    assert tuple(found) == network.learned[::-1]
    _same((told, found), found_by_oracle(oracle, weights))
    assert network.backward(inputs[:0], targets[:0], (), found.__setitem__) == 0
    assert not any(gradient.any() for gradient in found.values())


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_module_of_torch_has_the_terms_of_the_oracle(loss: str, weights: tuple[float, ...] | None) -> None:
    pytest.importorskip("torch")
    from torch_replicas import replica_of

    oracle, job = walked(loss)
    replica = replica_of(model_of(loss), job.initial(0))
    assert job.data is not None
    inputs, targets = job.data.arrays(model_of(loss))
    weighing = None if weights is None else np.array(weights)
    told = replica.backward(Batch(inputs[:3], targets[:3], weights=weighing))
    _same((told, replica.gradients()), found_by_oracle(oracle, weights))
    replica.zero_grad()
    assert replica.backward(Batch(inputs[:0], targets[:0])) == 0
    assert not any(np.any(gradient) for gradient in replica.gradients().values())
    assert replica.predict(Batch(inputs[:2], targets[:2])).shape == (2, 3)


def _same(got: tuple[float, Any], expected: tuple[float, dict[str, Array]]) -> None:
    assert got[0] == pytest.approx(expected[0], rel=1e-12)
    assert got[1].keys() == expected[1].keys()
    for name, gradient in expected[1].items():
        np.testing.assert_allclose(got[1][name], gradient, rtol=1e-12, atol=1e-14, err_msg=name)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("world_size", [2, 3])
def test_equal_shards_give_the_gradient_of_the_concatenated_batch(world_size: int, loss: str) -> None:
    model = model_of(loss)
    many, whole = one_backward(model, [2] * world_size), one_backward(model, [2 * world_size])
    expected = moments(whole)[-1].arrays["gradients"]
    for name, entry in moments(many)[-1].arrays["gradients"].items():
        np.testing.assert_allclose(entry.value.exact[0], expected[name].value.exact[0], rtol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_bounds_hold_in_float32_and_are_tight(loss: str) -> None:
    """The network in float32 stays within the bound, which is a small part of the largest gradient."""
    model = ModelSpec((*EVERY_TERM[:5], *EVERY_TERM[-2:]), loss, 1.5)  # type: ignore[arg-type]  # one of LOSSES
    for seed in range(20):
        job = replace(one_backward(model, [3]), seed=seed)
        loss_, entries = (moments(job, bounds=True)[number] for number in (1, -1))
        found: dict[str, Any] = {}
        assert job.data is not None
        assert job.model is not None
        inputs, targets = job.data.arrays(job.model)
        told = Network(job.model, job.initial(0)).backward(inputs, targets, (), found.__setitem__)
        value = loss_.numbers["loss"]
        assert value.error is not None
        assert abs(told - value.exact[0]) <= value.error[0] < 0.01 * max(abs(value.exact[0]), 1.0)
        for name, entry in entries.arrays["gradients"].items():
            assert entry.value.error is not None
            assert (abs(found[name] - entry.value.exact[0]) <= entry.value.error[0]).all(), (seed, name)
            assert entry.value.error.max() < 0.01 * max(abs(entry.value.exact).max(), 0.1)


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.__name__.strip("_"))
@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5])
def test_jobs_without_steps_are_exact_in_numpy_too(world_size: int, chain: Any) -> None:
    for job in (auxiliary_terms.once(world_size, chain), auxiliary_terms.uneven(world_size, chain, exact=True)):
        assert job.model is not None
        assert is_exact(job, PROMISED)
        moment = next(moment for moment in moments(job) if "loss" in moment.numbers)
        gradients = moments(job)[moment.position + 1].arrays["gradients"]
        assert job.data is not None
        inputs, targets = job.data.arrays(job.model)
        networks = [Network(job.model, job.initial(0)) for _ in range(world_size)]
        found: list[dict[str, Any]] = [{} for _ in networks]
        assert isinstance(moment.operation, Backward)
        for network, samples, own, loss in zip(
            networks, moment.operation.samples, found, moment.numbers["loss"].exact, strict=True
        ):
            rows = np.array(samples, int)
            assert network.backward(inputs[rows], targets[rows], (), own.__setitem__) == loss
        for name, entry in gradients.items():
            total = sum(own[name] for own in found)
            assert np.array_equal(np.asarray(total / world_size), entry.value.exact[0])


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.__name__.strip("_"))
@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5])
def test_every_job_shows_a_term_with_another_weight(world_size: int, chain: Any) -> None:
    """Bounds are finite, and exclude a term that is a tenth too large."""
    promised = TYPICAL.of_facets("replica").but(sample_weights="equal_ranks")
    for job in (
        auxiliary_terms.trained(world_size, chain, clipping=True, saving=True),
        auxiliary_terms.accumulated(world_size, chain, no_sync=True),
        auxiliary_terms.weighted(world_size, chain),
    ):
        assert job.model is not None
        assert Job.from_plain(job.to_plain()) == job
        larger = replace(job, model=replace(job.model, layers=tuple(map(_larger, job.model.layers))))
        right, wrong = (moments(one, promised, bounds=True) for one in (job, larger))
        looks = [
            (one.arrays["gradients"], other.arrays["gradients"])
            for one, other in zip(right, wrong, strict=True)
            if "gradients" in one.arrays
        ]
        assert all(np.isfinite(np.asarray(entry.value.error)).all() for one, _ in looks for entry in one.values())
        apart = [
            (abs(entry.value.exact - other[name].value.exact) > np.asarray(entry.value.error)).any()
            for one, other in looks[:2]
            for name, entry in one.items()
        ]
        assert any(apart)


def _larger(layer: Layer) -> Layer:
    if isinstance(layer, (Activity, Head)):
        return replace(layer, coefficient=1.1 * layer.coefficient)
    return replace(layer, penalty=1.1 * layer.penalty) if isinstance(layer, Linear) else layer


def test_each_kind_of_term_is_a_feature_of_its_own() -> None:
    assert {"penalty", "activity", "auxiliary_head"} <= model_of("linear").features()
    assert [ModelSpec(chain(1.0)).features() for chain in CHAINS] == [{"penalty"}, {"activity"}, {"auxiliary_head"}]
    assert [list(terms_of(ModelSpec(chain(1.0)))) for chain in CHAINS] == [[Linear], [Activity], [Head]]


@pytest.mark.parametrize(
    ("layers", "says"),
    [
        ((Linear("a", 2, 2, penalty=1.0, branch="b"), Linear("c", 2, 2)), "'a' has a penalty"),
        ((Linear("a", 2, 2), Linear("b", 2, 2, uses="a", penalty=1.0)), "'b' has a penalty"),
        (
            (Linear("a", 2, 3), Head("head", 3, 3, 1.0), Linear("b", 3, 2)),
            "head 'head' has 3 outputs, but the model has 2",
        ),
        ((Linear("a", 2, 3), Head("head", 2, 3, 1.0)), "takes 2 features, but gets 3"),
        ((Linear("a", 2, 2), Head("a", 2, 2, 1.0)), "two layers are named 'a'"),
    ],
)
def test_models_that_cannot_be_built_say_why(layers: tuple[Layer, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ModelSpec(layers)


def test_penalty_added_after_the_reduction_may_nearly_cancel() -> None:
    model = ModelSpec(
        (Linear("fc1", 4, 7), Activation("tanh"), Linear("fc2", 7, 7, penalty=0.5)), "linear", dtype="float64"
    )
    drawn = Job(2, (Backward(((0, 1, 2), (3, 4, 5))),), model, data=DataSpec(6, "real", 18), seed=17)
    made = partial(base.facets, unusual_terms.AfterTheReduction)
    job = local_then_synchronised(drawn)
    promised = unusual_terms.PenaltiesAfterTheReduction.capabilities
    reduction_is_tight(promised)(job, ThreadedSession(made, 2, promised, 1).run(job))
