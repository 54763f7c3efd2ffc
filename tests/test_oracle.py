"""The oracle against numerical differences, against torch, and its bounds against float32 in random orders."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ddpcheck.capabilities import Capabilities
from ddpcheck.job import Backward, Clip, Job, Observe, Operation, OptimizerSpec, Predict, Resume, Save, Step, ZeroGrad
from ddpcheck.model import Activation, BatchNorm, Embedding, Linear, ModelSpec, Scale, mlp
from ddpcheck.oracle import Moment, Oracle, is_exact
from ddpcheck.oracle.autodiff import gradients
from ddpcheck.oracle.exactness import SIGNIFICAND, largest_integer, reciprocal_is_exact
from ddpcheck.oracle.history import Accumulated
from ddpcheck.oracle.network import Shards, evaluate
from ddpcheck.values import Array
from ddpcheck_properties.pitfalls import window
from ddpcheck_properties.strategies import branching, shards, training_job

PROMISED = Capabilities()
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
    """What rank 0 holds at the last operation."""
    return {name: entry.value.exact[0] for name, entry in moments(job, capabilities, bounds)[-1].arrays[what].items()}


def moments(job: Job, capabilities: Capabilities = PROMISED, bounds: bool = False) -> list[Moment]:
    return list(Oracle(job, capabilities, bounds=bounds).walk())


def one_backward(
    model: ModelSpec, batches: list[int], *, exact: bool = False, branches: tuple[tuple[str, ...], ...] = ()
) -> Job:
    look = Observe(("gradients",))
    return training_job(
        len(batches), model, [ZeroGrad(), Backward(shards(batches), branches=branches), look], exact=exact
    )


# ------------------------------------------------------------------------------------------------------------ gradients


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


def test_relu_passes_no_gradient_at_zero() -> None:
    model = ModelSpec((Linear("fc1", 1, 2), Activation("relu"), Linear("fc2", 2, 1)), loss="linear")
    ones = {
        name: np.ones((1, *shape))
        for name, shape in (("fc1.weight", (2, 1)), ("fc2.weight", (1, 2)), ("fc2.bias", (1,)))
    }
    at_zero = {**ones, "fc1.bias": np.array([[-1.0, 0.0]])}
    shard = Shards(np.ones((1, 1, 1)), np.ones((1, 1, 1)), np.array([1]), {})
    assert evaluate(model, at_zero, {}, shard).gradients["fc1.bias"].tolist() == [[0.0, 1.0]]


def test_what_the_result_does_not_depend_on_has_no_gradient() -> None:
    assert gradients(lambda x: 2.0, {"a": np.ones(1)}) == {}
    assert set(gradients(lambda x: (x["a"] ** 2).sum(), {"a": np.ones(1), "b": np.ones(1)})) == {"a"}


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
        found = last(job, capabilities=Capabilities(uneven_batches=convention))  # type: ignore[arg-type]
        np.testing.assert_allclose(found[name], expected, rtol=1e-13)
    np.testing.assert_allclose(last(job, capabilities=Capabilities(gradient="sum"))[name], 2 * means["equal_weight"])


def job_model(job: Job) -> ModelSpec:
    assert job.model is not None
    return job.model


def _of_rank_1(job: Job) -> dict[str, Array]:
    made_of = moments(job)[-1].arrays["gradients"]["fc1.weight"].made_of
    assert isinstance(made_of, Accumulated)
    return {"fc1.weight": made_of.contributions().own[1]}


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
def test_presence_of_a_gradient_that_nobody_used(promise: str, expected: str) -> None:
    job = one_backward(branching(2, "ab"), [2, 2], branches=(("a",), ()))
    entries = moments(job, Capabilities(unused_gradient=promise))[-1].arrays["gradients"]  # type: ignore[arg-type]
    assert entries["branch_a.weight"].presence == ("there", "there")
    assert entries["branch_b.weight"].presence == (expected, expected)


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


# ----------------------------------------------------------------------------------------------------------- exactness


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
    """131 = 393 / 3 is no multiple of 3: as some do, reducing it once more as 131 * fl(1/3) * 3 rounds. So scale by
    W^2.
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


# -------------------------------------------------------------------------------------------------------------- bounds


@pytest.mark.parametrize("loss", ["linear", "squared_error", "cross_entropy"])
@pytest.mark.parametrize("curve", ["relu", "tanh"])
def test_bounds_hold_in_float32_and_are_not_absurd(curve: str, loss: str) -> None:
    """An independent float32 forward and backward, sums in random orders: always within the bound, and not far below
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


def _in_float32(job: Job, curve: str, loss: str, rng: np.random.Generator) -> dict[str, Array]:
    """The mean of two ranks' gradients of a two-layer network, with every matrix product added up in a random order."""
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
    """Three steps computed in float32 stay within the float32 bound, and break the float64 one by far."""
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
