"""The hand-written backward against numerical differences, and the optimizers against their formulas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from ddpcheck.job import OptimizerSpec
from ddpcheck.models.spec import Activation, BatchNorm, Embedding, Linear, ModelSpec, Scale, mlp
from ddpcheck.seeded_values import Array, key_of, numbers
from ddpcheck_implementations.numpy_network import Network, make_optimizer
from ddpcheck_implementations.numpy_network.layers import Relu

Gradients = dict[str, Array | None]

MODELS = {
    "linear": ModelSpec((Linear("a", 3, 2),), dtype="float64"),
    "no_bias": ModelSpec((Linear("a", 3, 2, bias=False),), dtype="float64"),
    "relu": mlp((3, 4, 2), dtype="float64"),
    "tanh": mlp((3, 4, 2), activation="tanh", dtype="float64"),
    "frozen": ModelSpec((Linear("a", 3, 4), Linear("b", 4, 4, frozen=True), Linear("c", 4, 2)), dtype="float64"),
    "frozen_first": ModelSpec((Linear("a", 3, 4, frozen=True), Linear("b", 4, 2)), dtype="float64"),
    "branch": ModelSpec((Linear("a", 3, 4), Linear("b", 4, 4, branch="on"), Linear("c", 4, 2)), dtype="float64"),
    "branch_first": ModelSpec((Linear("a", 3, 3, branch="on"), Linear("b", 3, 2)), dtype="float64"),
    "tied": ModelSpec(
        (Linear("a", 3, 3), Activation("tanh"), Linear("b", 3, 3, uses="a"), Linear("c", 3, 3, uses="b")),
        dtype="float64",
    ),
    "tied_to_branch": ModelSpec((Linear("a", 3, 3, branch="off"), Linear("b", 3, 3, uses="a")), dtype="float64"),
    "scale": ModelSpec((Linear("a", 3, 4), Scale("s", 4), Linear("b", 4, 2)), dtype="float64"),
    "scalar": ModelSpec((Linear("a", 3, 4), Scale("s", 0), Linear("b", 4, 2)), dtype="float64"),
    "scale_buffer": ModelSpec((Linear("a", 3, 4), Scale("s", 4, buffer=True), Linear("b", 4, 2)), dtype="float64"),
    "batch_norm": ModelSpec(
        (Linear("a", 3, 4), BatchNorm("n", 4), Activation("tanh"), Linear("b", 4, 2)), dtype="float64"
    ),
    "batch_norm_first": ModelSpec((BatchNorm("n", 3), Linear("b", 3, 2)), dtype="float64"),
    "embedding": ModelSpec((Embedding("e", 5, 3), Linear("a", 3, 2)), dtype="float64"),
    "cross_entropy": mlp((3, 4, 3), activation="tanh", loss="cross_entropy", dtype="float64"),
    "linear_loss": mlp((3, 2), loss="linear", loss_scale=2.5, dtype="float64"),
    "scaled_loss": mlp((3, 4, 2), activation="tanh", loss_scale=0.5, dtype="float64"),
}


def data(model: ModelSpec, rows: int = 4) -> tuple[Array, Array]:
    ids = numbers((rows,), "int64", "lattice", 7, 1000)
    inputs = ids % 3  # ids repeat, and some never occur
    if model.vocabulary is None:
        inputs = numbers((rows, model.input_features), model.dtype, "real", 1)
    if model.loss == "cross_entropy":
        return inputs, (ids >> 2) % model.output_features
    return inputs, numbers((rows, model.output_features), model.dtype, "real", 2)


def backward(
    network: Network, batch: tuple[Array, Array], branches: tuple[str, ...] = ("on",)
) -> tuple[float, Gradients]:
    gradients: Gradients = {}
    loss = network.backward(*batch, branches, gradients.__setitem__)
    return loss, gradients


def difference(
    model: ModelSpec, initial: Mapping[str, Array], batch: tuple[Array, Array], name: str, element: int
) -> float:
    """The derivative by one element, by a difference quotient of fourth order."""

    def loss(shift: float) -> float:
        moved = dict(initial)
        moved[name] = moved[name].copy()
        moved[name].reshape(-1)[element] += shift
        return backward(Network(model, moved), batch)[0]

    h = 1e-3
    return (8 * (loss(h) - loss(-h)) - (loss(2 * h) - loss(-2 * h))) / (12 * h)


@pytest.mark.parametrize("name", MODELS)
def test_backward_gives_the_derivative_of_the_loss(name: str) -> None:
    model = MODELS[name]
    initial = model.initial(3, "real")
    batch = data(model)
    _, gradients = backward(Network(model, initial), batch)
    for parameter, gradient in gradients.items():
        assert gradient is not None, parameter
        assert gradient.shape == initial[parameter].shape, parameter
        for element, got in enumerate(gradient.reshape(-1)):
            want = difference(model, initial, batch, parameter, element)
            # the fourth-order formula's own error, h^4 times a fifth derivative, and rounding 1e-16 / h
            assert got == pytest.approx(want, rel=1e-8, abs=1e-9), (parameter, element)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_keep_dtype_and_are_reported_last_layer_first(name: str, dtype: str) -> None:
    declared = MODELS[name]
    model = ModelSpec(declared.layers, declared.loss, declared.loss_scale, dtype)
    network = Network(model, model.initial(0, "real"))
    _, gradients = backward(network, data(model))
    assert tuple(gradients) == network.learned[::-1]
    assert {gradient.dtype.name for gradient in gradients.values() if gradient is not None} == {dtype}
    outputs = network.predict(data(model)[0], ())
    assert (outputs.dtype, outputs.shape) == (dtype, (4, model.output_features))


@pytest.mark.parametrize("name", MODELS)
def test_an_empty_batch_has_loss_zero_and_zero_gradients(name: str) -> None:
    model = MODELS[name]
    network = Network(model, model.initial(0, "real"))
    before = {name: buffer.copy() for name, buffer in network.buffers.items()}
    loss, gradients = backward(network, data(model, rows=0))
    assert loss == 0.0
    assert all(gradient is not None and not gradient.any() for gradient in gradients.values())
    assert all((network.buffers[name] == before[name]).all() for name in before)
    assert network.predict(data(model, rows=0)[0], ()).shape == (0, model.output_features)


def test_parameters_of_a_branch_not_taken_have_no_gradient() -> None:
    for name in ("branch", "branch_first"):
        network = Network(MODELS[name], MODELS[name].initial(0, "real"))
        _, gradients = backward(network, data(MODELS[name]), branches=())
        unused = {name for name, gradient in gradients.items() if gradient is None}
        branch = "b" if name == "branch" else "a"
        assert unused == {f"{branch}.weight", f"{branch}.bias"}
        assert tuple(gradients) == network.learned[::-1]


def test_relu_has_derivative_zero_at_zero_and_stops_infinite_gradients() -> None:
    relu = Relu()
    assert relu.forward(np.array([[0.0, -1.0, 2.0]]), training=True).tolist() == [[0, 0, 2]]
    assert relu.backward(np.array([[1.0, np.inf, 3.0]]), {}).tolist() == [[0, 0, 3]]


def test_batch_norm_tracks_mean_and_unbiased_variance_in_training_only() -> None:
    model = ModelSpec((BatchNorm("n", 2),), dtype="float64")
    initial = model.initial(0, "real")
    network = Network(model, initial)
    inputs, targets = numbers((5, 2), "float64", "real", 1), np.zeros((5, 2))
    network.predict(inputs, ())
    backward(network, (inputs, targets))
    buffers = network.buffers
    mean = 0.9 * initial["n.running_mean"] + 0.1 * inputs.mean(axis=0)
    variance = 0.9 * initial["n.running_var"] + 0.1 * inputs.var(axis=0, ddof=1)
    np.testing.assert_allclose(buffers["n.running_mean"], mean, rtol=1e-14)
    np.testing.assert_allclose(buffers["n.running_var"], variance, rtol=1e-14)
    assert buffers["n.num_batches_tracked"] == initial["n.num_batches_tracked"] + 1
    assert buffers["n.num_batches_tracked"].dtype == np.int64
    normal = (inputs - buffers["n.running_mean"]) / np.sqrt(buffers["n.running_var"] + 1e-5)
    want = normal * initial["n.weight"] + initial["n.bias"]
    np.testing.assert_allclose(network.predict(inputs, ()), want, rtol=1e-13)


def test_a_network_leaves_its_initial_values_alone_and_names_missing_ones() -> None:
    model = MODELS["relu"]
    initial = model.initial(0, "real")
    kept = {name: array.copy() for name, array in initial.items()}
    network = Network(model, initial)
    network.parameters["fc1.weight"] += 1
    assert all((initial[name] == kept[name]).all() for name in kept)
    del initial["fc2.bias"]
    with pytest.raises(ValueError, match=r"fc2\.bias"):
        Network(model, initial)


SPECS = [
    OptimizerSpec("sgd", lr=0.1),
    OptimizerSpec("sgd", lr=0.1, momentum=0.9),
    OptimizerSpec("sgd", lr=0.1, momentum=0.9, weight_decay=0.01),
    OptimizerSpec("adam", lr=0.01),
    OptimizerSpec("adam", lr=0.01, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1),
]


def formula(spec: OptimizerSpec, parameter: Array, gradients: list[Array]) -> Array:
    """The published update rules, unrolled over the whole history."""
    first: Any = None
    second: Any = 0.0
    for step, plain in enumerate(gradients, start=1):
        gradient = plain + spec.weight_decay * parameter
        if spec.name == "sgd":
            first = gradient if first is None else spec.momentum * first + gradient
            parameter = parameter - spec.lr * first
        else:
            b1, b2 = spec.betas
            first = b1 * (0.0 if first is None else first) + (1 - b1) * gradient
            second = b2 * second + (1 - b2) * gradient**2
            parameter = parameter - spec.lr * (first / (1 - b1**step)) / (np.sqrt(second / (1 - b2**step)) + spec.eps)
    return parameter


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_optimizers_follow_their_formulas(spec: OptimizerSpec, shape: tuple[int, ...]) -> None:
    start = numbers(shape, "float64", "real", 1)
    parameter, unused = start.copy(), start.copy()
    gradients = [numbers(shape, "float64", "real", key_of(2, step)) for step in range(4)]
    optimizer = make_optimizer(spec, {"p": parameter, "unused": unused})
    for gradient in gradients:
        optimizer.step({"p": gradient, "unused": None})
    np.testing.assert_allclose(parameter, formula(spec, start, gradients), rtol=1e-12)
    assert (unused == start).all()


@pytest.mark.parametrize("spec", SPECS)
def test_optimizer_state_continues_the_same_updates(spec: OptimizerSpec) -> None:
    gradients = [numbers((3,), "float32", "real", step) for step in range(4)]
    whole = numbers((3,), "float32", "real", 9)
    halves = whole.copy()
    straight, first = make_optimizer(spec, {"p": whole}), make_optimizer(spec, {"p": halves})
    for gradient in gradients:
        straight.step({"p": gradient})
    for gradient in gradients[:2]:
        first.step({"p": gradient})
    second = make_optimizer(spec, {"p": halves})
    second.step({"p": np.zeros(3, np.float32)})  # state from before loading must have no effect
    halves[...] = formula_free_copy(spec, gradients[:2])
    second.load_state(first.state())
    for gradient in gradients[2:]:
        second.step({"p": gradient})
    assert (whole == halves).all()
    assert whole.dtype == np.float32


def formula_free_copy(spec: OptimizerSpec, gradients: list[Array]) -> Array:
    """The parameter after these updates, by a new optimizer."""
    parameter = numbers((3,), "float32", "real", 9)
    optimizer = make_optimizer(spec, {"p": parameter})
    for gradient in gradients:
        optimizer.step({"p": gradient})
    return parameter


def test_state_of_another_optimizer_is_refused() -> None:
    parameters = {"p": np.zeros(2)}
    adam = make_optimizer(SPECS[3], parameters)
    adam.step({"p": np.ones(2)})
    with pytest.raises(ValueError, match="another"):
        make_optimizer(SPECS[1], parameters).load_state(adam.state())


@pytest.mark.parametrize("features", [0, 3])
def test_a_wide_scale_and_its_gradient_have_float64_in_a_network_of_float32(features: int) -> None:
    model = ModelSpec((Scale("s", features, wide=True), Scale("t", 3)), loss="linear")
    network, (x, t) = Network(model, initial := model.initial(3, "real")), data(model)
    _, gradients = backward(network, (x, t))
    of_wide, of_other = gradients["s.scale"], gradients["t.scale"]
    assert of_wide is not None
    assert of_other is not None
    assert [array.dtype.name for array in (of_wide, of_other, network.predict(x, ()))] == ["float64", *2 * ["float32"]]
    dy = (t / np.float32(len(x))) * initial["t.scale"]
    products = dy.astype(np.float64) * x
    # to the bits of float64, up to the order of a dozen additions
    np.testing.assert_allclose(of_wide, products.sum(0) if features else products.sum(), rtol=0, atol=1e-15)


def test_a_replaced_weight_moves_to_new_memory_in_training_only_and_the_optimizer_follows() -> None:
    model = ModelSpec((Linear("fc1", 2, 3, replaced=True), Linear("fc2", 3, 1)), loss="linear")
    network = Network(model, model.initial(1, "real"))
    optimizer = make_optimizer(OptimizerSpec(lr=0.5), network.parameters)
    kept = dict(network.parameters)
    inputs = np.ones((2, 2), np.float32)
    found: dict[str, Any] = {}
    before = network.predict(inputs, ())
    assert network.parameters["fc1.weight"] is kept["fc1.weight"]
    network.backward(inputs, np.ones((2, 1), np.float32), (), found.__setitem__)
    optimizer.step(found)
    assert (network.parameters["fc1.weight"] != kept["fc1.weight"]).all()
    assert network.tensors["fc1.weight"] is network.parameters["fc1.weight"]
    assert network.parameters["fc2.weight"] is kept["fc2.weight"]
    assert (network.predict(inputs, ()) != before).all()
