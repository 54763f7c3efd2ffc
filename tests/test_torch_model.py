"""torch's modules for a ModelSpec, layer by layer, against forward passes and derivatives written by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch_replicas import T, X, assert_close, initial_of, replica_of, spec  # noqa: E402

from ddpcheck.contract.adapter import Batch  # noqa: E402
from ddpcheck.models.spec import Activation, BatchNorm, Embedding, Linear, ModelSpec, Scale  # noqa: E402
from ddpcheck.pytorch.model import build_model  # noqa: E402


def test_linear_and_squared_error() -> None:
    model = spec(Linear("fc", 3, 2), scale=4.0)
    p = initial_of(model)
    y = X @ p["fc.weight"].T + p["fc.bias"]
    d = 4.0 * (y - T) / 2
    replica = replica_of(model, p)
    assert replica.backward(Batch(X, T)) == pytest.approx(4.0 * ((y - T) ** 2).sum() / 2 / 2, rel=1e-14)
    assert_close(replica.gradients(), {"fc.weight": d.T @ X, "fc.bias": d.sum(0)})


def test_linear_without_bias_and_linear_loss() -> None:
    model = spec(Linear("fc", 3, 2, bias=False), loss="linear")
    p = initial_of(model)
    replica = replica_of(model, p)
    assert replica.backward(Batch(X, T)) == pytest.approx(((X @ p["fc.weight"].T) * T).sum() / 2, rel=1e-14)
    assert_close(replica.gradients(), {"fc.weight": T.T @ X / 2})


def test_cross_entropy() -> None:
    model = spec(Linear("fc", 3, 2), loss="cross_entropy")
    p = initial_of(model)
    labels = np.array([1, 0])
    y = X @ p["fc.weight"].T + p["fc.bias"]
    chances = np.exp(y) / np.exp(y).sum(1, keepdims=True)
    d = (chances - np.eye(2)[labels]) / 2
    replica = replica_of(model, p)
    expected = -np.log(chances[[0, 1], labels]).mean()
    assert replica.backward(Batch(X, labels)) == pytest.approx(expected, rel=1e-14)
    assert_close(replica.gradients(), {"fc.weight": d.T @ X, "fc.bias": d.sum(0)})


@pytest.mark.parametrize("function", ["relu", "tanh"])
def test_activation(function: Any) -> None:
    model = spec(Linear("a", 3, 2), Activation(function), Linear("b", 2, 2), loss="linear")
    p = initial_of(model)
    h = X @ p["a.weight"].T + p["a.bias"]
    z = np.maximum(h, 0) if function == "relu" else np.tanh(h)
    d = (T / 2) @ p["b.weight"] * ((h > 0) if function == "relu" else 1 - z**2)
    replica = replica_of(model, p)
    replica.backward(Batch(X, T))
    assert_close(
        replica.gradients(),
        {"a.weight": d.T @ X, "a.bias": d.sum(0), "b.weight": T.T @ z / 2, "b.bias": T.sum(0) / 2},
    )


def test_relu_has_derivative_0_at_0() -> None:
    model = spec(Linear("a", 1, 1, bias=False), Activation("relu"), loss="linear")
    replica = replica_of(model, {"a.weight": np.array([[5.0]])})
    replica.backward(Batch(np.zeros((1, 1)), np.ones((1, 1))))
    assert_close(replica.gradients(), {"a.weight": np.zeros((1, 1))})


@pytest.mark.parametrize("features", [2, 0])
def test_scale(features: int) -> None:
    model = spec(Linear("fc", 3, 2, bias=False), Scale("s", features), loss="linear")
    p = initial_of(model)
    h = X @ p["fc.weight"].T
    of_scale = (T / 2 * h).sum(0) if features else np.asarray((T / 2 * h).sum())
    replica = replica_of(model, p)
    replica.backward(Batch(X, T))
    assert_close(replica.gradients(), {"fc.weight": (T / 2 * p["s.scale"]).T @ X, "s.scale": of_scale})
    assert np.asarray(replica.gradients()["s.scale"]).shape == ((2,) if features else ())


@pytest.mark.parametrize("features", [3, 0])
def test_a_wide_scale_is_of_float64_among_float32(features: int) -> None:
    model = replace(spec(Scale("s", features, wide=True), Scale("t", 3), loss="linear"), dtype="float32")
    p = initial_of(model)
    replica = replica_of(model, p)
    x, t = X.astype(np.float32), X[::-1].astype(np.float32)
    replica.backward(Batch(x, t))
    products = (t / 2 * p["t.scale"]).astype(np.float64) * x
    gradients = {name: np.asarray(gradient) for name, gradient in replica.gradients().items()}
    assert {name: array.dtype.name for name, array in gradients.items()} == {"s.scale": "float64", "t.scale": "float32"}
    np.testing.assert_allclose(gradients["s.scale"], products.sum(0) if features else products.sum(), rtol=1e-15)
    assert replica.predict(Batch(x, t)).dtype == np.float32


def test_scale_as_buffer() -> None:
    model = spec(Linear("fc", 3, 2, bias=False), Scale("s", 2, buffer=True), loss="linear")
    p = initial_of(model)
    replica = replica_of(model, p)
    replica.backward(Batch(X, T))
    assert_close(replica.gradients(), {"fc.weight": (T / 2 * p["s.scale"]).T @ X})
    assert_close(replica.buffers(), {"s.scale": p["s.scale"]})
    assert replica.parameters().keys() == {"fc.weight"}


def test_batch_norm() -> None:
    model = spec(BatchNorm("norm", 3), Linear("fc", 3, 2, bias=False), loss="linear")
    p = initial_of(model)
    x = np.array([[1.0, -2.0, 0.5], [0.25, 3.0, -1.0], [2.0, 1.0, 0.0]])
    t = np.array([[1.0, 0.5], [-1.0, 2.0], [0.5, 0.25]])
    mean, variance = x.mean(0), x.var(0)
    normal = (x - mean) / np.sqrt(variance + 1e-5)
    d = (t / 3) @ p["fc.weight"]
    replica = replica_of(model, p)
    replica.backward(Batch(x, t))
    out = normal * p["norm.weight"] + p["norm.bias"]
    assert_close(
        replica.gradients(),
        {"norm.weight": (d * normal).sum(0), "norm.bias": d.sum(0), "fc.weight": t.T @ out / 3},
    )
    running_mean = 0.9 * p["norm.running_mean"] + 0.1 * mean
    running_var = 0.9 * p["norm.running_var"] + 0.1 * x.var(0, ddof=1)
    tracked = np.asarray(p["norm.num_batches_tracked"] + 1)
    assert_close(
        replica.buffers(),
        {"norm.running_mean": running_mean, "norm.running_var": running_var, "norm.num_batches_tracked": tracked},
    )
    evaluated = (x - running_mean) / np.sqrt(running_var + 1e-5) * p["norm.weight"] + p["norm.bias"]
    np.testing.assert_allclose(replica.predict(Batch(x, t)), evaluated @ p["fc.weight"].T, rtol=1e-12)


def test_embedding_adds_up_repeated_ids() -> None:
    model = spec(Embedding("e", 4, 2), loss="linear")
    p = initial_of(model)
    ids = np.array([2, 0, 2])
    t = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    replica = replica_of(model, p)
    assert replica.backward(Batch(ids, t)) == pytest.approx((p["e.weight"][ids] * t).sum() / 3)
    expected = np.zeros((4, 2))
    np.add.at(expected, ids, t / 3)
    assert_close(replica.gradients(), {"e.weight": expected})


def test_tied_layers_share_one_gradient() -> None:
    model = spec(Linear("a", 3, 3), Linear("again", 3, 3, uses="a"), loss="linear")
    p = initial_of(model)
    w, b = p["a.weight"], p["a.bias"]
    t = np.array([[1.0, 0.5, -1.0], [2.0, 0.25, 3.0]])
    h, d = X @ w.T + b, t / 2
    replica = replica_of(model, p)
    replica.backward(Batch(X, t))
    assert_close(replica.gradients(), {"a.weight": d.T @ h + (d @ w).T @ X, "a.bias": d.sum(0) + (d @ w).sum(0)})


def test_frozen_layer_has_no_gradient_and_passes_it_on() -> None:
    model = spec(Linear("a", 3, 2, bias=False), Linear("b", 2, 2, bias=False, frozen=True), loss="linear")
    p = initial_of(model)
    replica = replica_of(model, p)
    replica.backward(Batch(X, T))
    assert_close(replica.gradients(), {"a.weight": (T / 2 @ p["b.weight"]).T @ X})
    assert replica.parameters().keys() == {"a.weight", "b.weight"}


def test_branch_is_residual_and_unused_where_inactive() -> None:
    model = spec(Linear("a", 3, 3, bias=False, branch="left"), Linear("b", 3, 2, bias=False), loss="linear")
    p = initial_of(model)
    replica = replica_of(model, p)
    replica.backward(Batch(X, T))
    assert_close(replica.gradients(), {"a.weight": None, "b.weight": T.T @ X / 2})
    replica.zero_grad()
    replica.backward(Batch(X, T, ("left",)))
    h = X + X @ p["a.weight"].T
    assert_close(replica.gradients(), {"a.weight": (T / 2 @ p["b.weight"]).T @ X, "b.weight": T.T @ h / 2})
    np.testing.assert_allclose(replica.predict(Batch(X, T, ("left",))), h @ p["b.weight"].T)


def test_empty_batch_has_loss_and_gradients_0() -> None:
    for loss, targets in (("squared_error", np.zeros((0, 2))), ("cross_entropy", np.zeros(0, np.int64))):
        model = spec(Linear("fc", 3, 2), loss=loss)
        replica = replica_of(model, initial_of(model))
        assert replica.backward(Batch(np.zeros((0, 3)), targets)) == 0.0
        assert_close(replica.gradients(), {"fc.weight": np.zeros((2, 3)), "fc.bias": np.zeros(2)})


def test_initial_values_that_do_not_fit_are_named() -> None:
    model = spec(Linear("fc", 3, 2))
    with pytest.raises(ValueError, match=r'(?s)compare them with ModelSpec.tensors.*"fc.bias"'):
        build_model(model, {"fc.weight": np.zeros((2, 3))})


def test_a_strided_weight_lies_column_after_column_and_a_sparse_gradient_is_shown_whole() -> None:
    model = spec(Linear("a", 3, 2, strided=True), Linear("b", 2, 2), loss="linear")
    module = build_model(model, initial_of(model))
    assert {name: p.is_contiguous() for name, p in module.named_parameters() if "weight" in name} == {
        "a.weight": False,
        "b.weight": True,
    }
    table = spec(Embedding("e", 4, 2, sparse=True), loss="linear")
    replica = replica_of(table, initial_of(table))
    replica.backward(Batch(np.array([1, 3, 1]), np.array([[1.0, 2.0], [4.0, 0.0], [8.0, 1.0]])))
    assert_close(replica.gradients(), {"e.weight": np.array([[0, 0], [9, 3], [0, 0], [4, 0]]) / 3})


def test_a_replaced_weight_moves_to_new_memory_in_training_only() -> None:
    model = ModelSpec((Linear("fc1", 2, 3, replaced=True),))
    module = build_model(model, model.initial(1, "real"))
    weight = module.get_parameter("fc1.weight")
    kept = weight.data
    module.eval()(torch.ones(1, 2))
    assert weight.data_ptr() == kept.data_ptr()
    module.train()(torch.ones(1, 2)).sum().backward()
    assert module.get_parameter("fc1.weight") is weight
    assert weight.data_ptr() != kept.data_ptr()
    assert torch.equal(weight, kept)
    assert weight.grad is not None
