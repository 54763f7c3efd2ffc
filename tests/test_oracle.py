"""The oracle against numerical differences, and against torch."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from autograd.test_util import check_grads
from oracle_jobs import PROMISED, job_model, moments, one_backward

from ddpcheck.causes import gradients as gradients_causes
from ddpcheck.contract import TYPICAL, Capabilities, ReplicaSync
from ddpcheck.hypotheses.causes_of_wrong_arrays import likely_causes
from ddpcheck.hypotheses.evidence import evidence_of, evidence_of_gradient
from ddpcheck.hypotheses.gradients.accumulated import contributions_of
from ddpcheck.hypotheses.gradients.contributions import Contributions
from ddpcheck.hypotheses.gradients.passes import layers_gone_wrong
from ddpcheck.job import Backward, Clip, Job, Observe, Operation, OptimizerSpec, Predict, Resume, Save, Step, ZeroGrad
from ddpcheck.models.spec import Activation, BatchNorm, Embedding, Linear, ModelSpec, Scale, mlp
from ddpcheck.oracle import Oracle
from ddpcheck.oracle.autodiff import gradients
from ddpcheck.oracle.autograd_nodes import (
    affine,
    cross_entropy,
    cross_entropy_majorant,
    scaled,
    squared_distance,
    tanh_majorant,
)
from ddpcheck.oracle.network import Shards, evaluate
from ddpcheck.oracle.origins import Accumulated
from ddpcheck.oracle.passes import Pass
from ddpcheck.seeded_values import Array
from ddpcheck_properties.explicit_examples import window
from ddpcheck_properties.strategies import branching, shards, training_job

EVERY_LAYER = (
    Embedding("embedding", 5, 3),
    Linear("fc1", 3, 4),
    BatchNorm("norm", 4),
    Activation("tanh"),
    Linear("same", 4, 4),
    Linear("tied", 4, 4, uses="same"),
    Scale("scalar", 0),
    Linear("branch", 4, 4, branch="a"),
    Scale("scale", 4),
    Linear("fc2", 4, 3, bias=False),
)


def last(
    job: Job, what: str = "gradients", capabilities: Capabilities = PROMISED, *, bounds: bool = False
) -> dict[str, Array]:
    """Rank 0's values at the last operation."""
    return {name: entry.value.exact[0] for name, entry in moments(job, capabilities, bounds)[-1].arrays[what].items()}


@pytest.mark.parametrize("loss", ["linear", "squared_error", "cross_entropy"])
def test_gradients_are_those_of_numerical_differences(loss: str) -> None:
    model = ModelSpec(EVERY_LAYER, loss=loss, dtype="float64")  # type: ignore[arg-type]
    job = training_job(2, model, [Backward(shards([3, 2]))], exact=False)
    oracle = Oracle(job, PROMISED)
    shards_ = oracle.case.shards(((0, 1, 2), (3, 4)), (("a",), ()))
    tensors = {name: value.exact for name, value in oracle.weights.tensors.items()}
    learned = {name: tensors.pop(name) for name in oracle.learned}
    found = evaluate(oracle.case.model, learned, tensors, shards_)
    for name, array in learned.items():
        for index in np.ndindex(*array.shape):
            low, high = ({**learned, name: _moved(array, index, step)} for step in (-1e-6, 1e-6))
            losses = [evaluate(oracle.case.model, moved, tensors, shards_).losses.sum() for moved in (low, high)]
            assert found.gradients[name][index] == pytest.approx((losses[1] - losses[0]) / 2e-6, abs=2e-7)


def _moved(array: Array, index: tuple[int, ...], step: float) -> Array:
    copy = array.copy()
    copy[index] += step
    return copy


def test_relu_passes_no_gradient_at_zero_and_one_that_does_is_told() -> None:
    model = ModelSpec((Linear("fc1", 1, 2), Activation("relu"), Linear("fc2", 2, 1)), loss="linear")
    ones = {
        name: np.ones((1, *shape))
        for name, shape in (("fc1.weight", (2, 1)), ("fc2.weight", (1, 2)), ("fc2.bias", (1,)))
    }
    at_zero = {**ones, "fc1.bias": np.array([[-1.0, 0.0]])}
    done = Pass(model, at_zero, {}, Shards(np.ones((1, 1, 1)), np.ones((1, 1, 1)), np.array([1]), {}))
    own = evaluate(model, at_zero, {}, done.shards).gradients["fc1.bias"]
    assert own.tolist() == [[0.0, 1.0]]
    made_of = Contributions(
        own, own, own, None, 1, np.ones(1), False, False, passed=partial(layers_gone_wrong, done, "fc1.bias", own)
    )
    causes = likely_causes(np.array([0.5, 1.0], np.float32), own[0], evidence_of_gradient(made_of, own[0], 0))
    assert causes == (gradients_causes.RELU_AT_ZERO(slope=0.5),)


@pytest.mark.parametrize("uneven", ["equal_weight", "weighted"])
def test_gradients_at_the_ranks_own_initial_values_are_told(uneven: Any) -> None:
    """Losses do not show the missing broadcast if they agree by chance. After a step no rank has its initial values."""
    job, name = one_backward(mlp((2, 3, 2)), [4, 1]), "fc1.weight"
    without_broadcast = PROMISED.but(replica_sync=ReplicaSync.NOTHING, uneven_batches=uneven)
    entry = moments(job, PROMISED.but(uneven_batches=uneven))[-1].arrays["gradients"][name]
    other = moments(job, without_broadcast)[-1].arrays["gradients"][name]
    assert isinstance(other.made_of, Accumulated)
    expected, mean, parts = entry.value.exact[0], other.value.exact[0], contributions_of(other.made_of).own
    known = gradients_causes.AT_OWN_INITIAL, gradients_causes.SUMMED_AT_OWN_INITIAL
    for kind, got in zip(known, (mean, parts.sum(axis=0)), strict=True):
        assert likely_causes(got, expected, evidence_of(entry, 0)) == (kind(values="parameters"),)
    stepped = replace(job, operations=(*job.operations[:2], Step(), *job.operations))
    later = moments(stepped)[-1].arrays["gradients"][name]
    assert not {kind.id for kind in known} & {cause.id for cause, _ in evidence_of(later, 0).alternatives}


def test_rows_of_an_embedding_that_are_lost_are_told() -> None:
    model = ModelSpec((Embedding("embedding", 3, 1), Linear("fc1", 1, 1)), loss="linear")
    values = {"embedding.weight": np.ones((1, 3, 1)), "fc1.weight": np.ones((1, 1, 1)), "fc1.bias": np.ones((1, 1))}
    shards = Shards(np.array([[2, 0, 2]]), np.array([[[3.0], [6.0], [9.0]]]), np.array([3]), {})
    done, name = Pass(model, values, {}, shards), "embedding.weight"
    own = evaluate(model, values, {}, shards).gradients[name]
    assert own[0, :, 0].tolist() == [2.0, 0.0, 4.0]
    made_of = Contributions(
        own, own, own, None, 1, np.ones(1), False, False, passed=partial(layers_gone_wrong, done, name, own)
    )
    for rows, cause in (
        ([2, 0, 3], gradients_causes.REPEATED_ID_COUNTS_ONCE()),
        ([0, 0, 4], gradients_causes.ID_TAKEN_FOR_PADDING(which="first")),
    ):
        got = np.array(rows, np.float32).reshape(3, 1)
        (found,) = likely_causes(got, own[0], evidence_of_gradient(made_of, own[0], 0))
        assert found.id == cause.id


def test_unused_input_has_no_gradient() -> None:
    weights = np.array([3.0])
    assert gradients(lambda x: (weights, weights), {"a": np.ones(1)}) == {}
    assert gradients(lambda x: (x["a"] ** 2, weights), {"a": np.ones(1), "b": np.ones(1)}) == {"a": [6.0]}


def test_derivatives_of_fused_nodes_are_those_of_numerical_differences() -> None:
    random = np.random.default_rng(1)
    x, weight, bias = (random.normal(size=shape) for shape in ((2, 3, 4), (2, 4, 5), (2, 1, 5)))
    other, factors = random.normal(size=(2, 3, 4)), random.normal(size=(2, 1, 1))
    onehot = np.arange(4) == np.array([[0, 3, 1], [2, 2, 0]])[:, :, None]
    check_grads(affine, modes=["rev"], order=1)(x, weight, bias)
    for function in (
        lambda x: scaled(x, factors),
        lambda x: squared_distance(x, other),
        lambda x: cross_entropy(x, onehot),
        cross_entropy_majorant,
    ):
        check_grads(function, modes=["rev"], order=1)(x)


def test_majorants_grow_at_least_as_fast_as_their_functions() -> None:
    """No second derivative of tanh is larger than 4 / 3^1.5."""
    x = np.linspace(0, 3, 31).reshape(1, 1, -1)
    slope = gradients(lambda of: (tanh_majorant(of["x"]), np.ones_like(x)), {"x": x})["x"]
    assert np.array_equal(tanh_majorant(x), x)
    assert (slope >= 1 - np.tanh(x) ** 2).all()
    assert (np.diff(slope) / np.diff(x) >= 4 / 3**1.5).all()
    onehot = np.arange(31) == 4
    covered, over = (
        gradients(lambda of, entropy=entropy: (entropy(of["x"]), np.ones((1, 1, 1))), {"x": x})["x"]
        for entropy in (lambda y: cross_entropy(y, onehot), cross_entropy_majorant)
    )
    assert (over >= abs(covered)).all()
    assert (cross_entropy_majorant(x) >= cross_entropy(x, onehot)).all()


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_equal_shards_give_the_gradient_of_the_concatenated_batch(world_size: int) -> None:
    model = replace(mlp((3, 4, 2), activation="tanh"), dtype="float64")
    many = one_backward(model, [2] * world_size)
    whole = one_backward(model, [2 * world_size])
    for name, gradient in last(many).items():
        np.testing.assert_allclose(gradient, last(whole)[name], rtol=1e-13)


def test_conventions_for_uneven_batches_and_sums() -> None:
    job = one_backward(replace(mlp((2, 2)), dtype="float64"), [3, 1])
    local = [last(one_backward(job_model(job), [3])), _of_rank_1(job)]
    name = "fc1.weight"
    means = {
        "equal_weight": (local[0][name] + local[1][name]) / 2,
        "weighted": (3 * local[0][name] + local[1][name]) / 4,
    }
    for convention, expected in means.items():
        found = last(job, capabilities=TYPICAL.of_facets("replica").but(uneven_batches=convention))  # type: ignore[arg-type]
        np.testing.assert_allclose(found[name], expected, rtol=1e-13)
    np.testing.assert_allclose(
        last(job, capabilities=TYPICAL.of_facets("replica").but(gradient="sum"))[name], 2 * means["equal_weight"]
    )


def _of_rank_1(job: Job) -> dict[str, Array]:
    made_of = moments(job)[-1].arrays["gradients"]["fc1.weight"].made_of
    assert isinstance(made_of, Accumulated)
    return {"fc1.weight": contributions_of(made_of).own[1]}


def test_accumulation_adds_up_and_is_local_inside_no_sync() -> None:
    operations: list[Operation] = window(2, (2, 2), look=True)
    job = training_job(2, replace(mlp((2, 2)), dtype="float64"), operations)
    first, both = (m.arrays["gradients"]["fc1.weight"] for m in moments(job) if m.arrays)
    assert not np.array_equal(first.value.exact[0], first.value.exact[1])
    assert not first.alike
    assert both.alike
    second = last(replace(job, operations=(ZeroGrad(), operations[3], Observe(("gradients",)))))["fc1.weight"]
    np.testing.assert_array_equal(both.value.exact[0], first.value.exact.mean(axis=0) + second)


@pytest.mark.parametrize(("promise", "expected"), [("none", "none"), ("zero", "there")])
def test_presence_of_a_gradient_of_an_unused_parameter(promise: str, expected: str) -> None:
    job = one_backward(branching(2, "ab"), [2, 2], branches=(("a",), ()))
    entries = moments(job, TYPICAL.of_facets("replica").but(unused_gradient=promise))[-1].arrays["gradients"]  # type: ignore[arg-type]
    assert entries["branch_a.weight"].presence == ("there", "there")
    assert entries["branch_b.weight"].presence == (expected, expected)


def test_running_statistics_of_rank_zero() -> None:
    job = training_job(
        2,
        ModelSpec((BatchNorm("norm", 2), Linear("fc1", 2, 1))),
        [Backward(shards([3, 3])), Observe(("buffers",))],
        exact=False,
    )
    entries = moments(job, bounds=True)[-1].arrays["buffers"]
    assert job.data is not None
    x = job.data.arrays(job_model(job))[0][:3].astype(np.float64)
    start = job.initial(0)
    mean = 0.9 * start["norm.running_mean"] + 0.1 * x.mean(axis=0)
    variance = 0.9 * start["norm.running_var"] + 0.1 * x.var(axis=0, ddof=1)
    np.testing.assert_allclose(entries["norm.running_mean"].value.exact[0], mean, rtol=1e-7)
    np.testing.assert_allclose(entries["norm.running_var"].value.exact[0], variance, rtol=1e-7)
    assert entries["norm.running_mean"].ranks == (0,)
    assert entries["norm.num_batches_tracked"].ranks == (0, 1)
    assert entries["norm.num_batches_tracked"].value.exact[0] == start["norm.num_batches_tracked"] + 1


# ----------------------------------------------------------------------------------------------------------- optimizers


@pytest.mark.parametrize(
    "spec",
    [
        OptimizerSpec(lr=0.1),
        OptimizerSpec(lr=0.1, momentum=0.9, weight_decay=0.05),
        OptimizerSpec("adam", lr=0.05, betas=(0.5, 0.75), eps=1e-2),
        OptimizerSpec("adam", lr=0.05, weight_decay=0.1),
    ],
)
def test_optimizers_do_as_torch_does(spec: OptimizerSpec) -> None:
    torch = pytest.importorskip("torch")
    operations: list[Operation] = []
    for number in range(3):
        operations += [
            ZeroGrad(),
            Backward(shards([2], 2 * number)),
            Observe(("gradients",)),
            Step(),
            Observe(("parameters",)),
        ]
    job = training_job(1, replace(mlp((2, 3, 1)), dtype="float64"), operations, spec, exact=False)
    parameters = {name: torch.tensor(array) for name, array in job.initial(0).items()}
    options = {"lr": spec.lr, "weight_decay": spec.weight_decay}
    if spec.name == "sgd":
        optimizer = torch.optim.SGD(parameters.values(), momentum=spec.momentum, **options)
    else:
        optimizer = torch.optim.Adam(parameters.values(), betas=spec.betas, eps=spec.eps, **options)
    for moment in moments(job):
        for name, entry in moment.arrays.get("gradients", {}).items():
            parameters[name].grad = torch.tensor(entry.value.exact[0])
        if "parameters" in moment.arrays:
            optimizer.step()
            for name, entry in moment.arrays["parameters"].items():
                np.testing.assert_allclose(entry.value.exact[0], parameters[name].numpy(), rtol=1e-12)


def test_clipping_scales_to_the_norm() -> None:
    look = Observe(("gradients",))
    job = training_job(2, mlp((2, 2)), [Backward(shards([2, 2])), look, Clip(0.5), look], exact=False)
    before, norm, after = moments(job)[1:]
    squares = sum(float((e.value.exact[0] ** 2).sum()) for e in before.arrays["gradients"].values())
    assert norm.numbers["norm"].exact[0] == pytest.approx(squares**0.5)
    total = sum(float((e.value.exact[0] ** 2).sum()) for e in after.arrays["gradients"].values())
    assert total**0.5 == pytest.approx(0.5)


def test_resuming_continues_the_same_training() -> None:
    spec = OptimizerSpec(lr=0.1, momentum=0.9)
    rounds: list[Operation] = []
    for number in range(3):
        rounds += [ZeroGrad(), Backward(shards([2, 2], 4 * number)), Step()]
    look: list[Operation] = [Observe(("parameters",)), Predict(((0,), (1,)))]
    whole = training_job(2, mlp((2, 3, 1)), [*rounds, *look], spec, exact=False)
    resumed = replace(whole, operations=(*rounds[:3], Save(), Resume(), *rounds[3:], *look))
    for one, other in zip(
        moments(whole)[-2].arrays["parameters"].items(), moments(resumed)[-2].arrays["parameters"].items(), strict=True
    ):
        assert one[0] == other[0]
        np.testing.assert_array_equal(one[1].value.exact, other[1].value.exact)
