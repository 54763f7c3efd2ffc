"""What torch builds of a ModelSpec, layer by layer, against forward passes and derivatives written out by hand."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ddpcheck import torch_adapter  # noqa: E402  # all of these need torch, see importorskip
from ddpcheck.adapter import Batch, Replica  # noqa: E402
from ddpcheck.environment import RankContext  # noqa: E402
from ddpcheck.job import OptimizerSpec  # noqa: E402
from ddpcheck.model import Activation, BatchNorm, Embedding, Linear, ModelSpec, Scale, mlp  # noqa: E402
from ddpcheck.torch_model import build_model, loss_of  # noqa: E402
from ddpcheck.torch_replica import Hooks, TorchReplica  # noqa: E402
from ddpcheck.values import Array  # noqa: E402

Named = Mapping[str, Array | None]

X = np.array([[1.0, -2.0, 0.5], [0.25, 3.0, -1.0]])
T = np.array([[1.0, 0.5], [-1.0, 2.0]])


def replica_of(
    model: ModelSpec, initial: Mapping[str, Array], optimizer: OptimizerSpec | None = None, hooks: Hooks | None = None
) -> TorchReplica:
    """The module as its own wrapper: what one process does."""
    module = build_model(model, initial)
    return TorchReplica(
        module,
        module,
        loss_of(model.loss, model.loss_scale),
        optimizer or OptimizerSpec(),
        hooks or Hooks(),
        takes_branches=bool(model.branches),
        device=torch.device("cpu"),
    )


def initial_of(model: ModelSpec) -> dict[str, Array]:
    return model.initial(3, "real")


def assert_close(got: Named, expected: Named) -> None:
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        if value is None:
            assert got[name] is None, name
        else:
            np.testing.assert_allclose(np.asarray(got[name]), value, rtol=1e-12, atol=1e-14, err_msg=name)


def spec(*layers: Any, loss: Any = "squared_error", scale: float = 1.0) -> ModelSpec:
    return ModelSpec(layers, loss, scale, "float64")


# -------------------------------------------------------------------------------------------------------------- layers


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


# ------------------------------------------------------------------------------------------------------------- replica


def test_arrays_are_copies_in_and_out() -> None:
    model = spec(Linear("fc", 3, 2))
    p = initial_of(model)
    given = {name: value.copy() for name, value in p.items()}
    replica = replica_of(model, given)
    replica.backward(Batch(X[:, ::-1], T))
    parameters, gradients = replica.parameters(), replica.gradients()
    kept = {name: np.array(value) for name, value in gradients.items()}
    replica.step()
    replica.backward(Batch(X, T))
    assert_close(given, p)
    assert_close(parameters, p)
    assert_close(gradients, kept)


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_resumed_replica_goes_on_alike(name: Any) -> None:
    model = mlp((3, 4, 2), dtype="float64")
    optimizer = OptimizerSpec(name, lr=0.1, momentum=0.5 if name == "sgd" else 0.0)
    first, second = (
        replica_of(model, initial_of(model), optimizer),
        replica_of(model, model.initial(9, "real"), optimizer),
    )
    first.backward(Batch(X, T))
    first.step()
    second.load_state(first.state())
    for replica in (first, second):
        replica.zero_grad()
        replica.backward(Batch(X, T))
        replica.step()
    assert_close(second.parameters(), first.parameters())
    assert any(key.startswith("optimizer/") for key in first.state())


def test_state_of_another_model_is_refused() -> None:
    model = spec(Linear("fc", 3, 2))
    replica = replica_of(model, initial_of(model))
    with pytest.raises(ValueError, match=r"lacks fc\.bias.*another model"):
        replica.load_state({"fc.weight": np.zeros((2, 3))})


def test_clip_scales_all_gradients_by_the_global_norm() -> None:
    model = spec(Linear("fc", 3, 2), loss="linear")
    replica = replica_of(model, initial_of(model))
    replica.backward(Batch(X, T))
    before = {name: np.array(value) for name, value in replica.gradients().items()}
    norm = np.sqrt(sum((value**2).sum() for value in before.values()))
    assert replica.clip(0.5) == pytest.approx(norm)
    after = replica.gradients()
    for name, value in before.items():
        np.testing.assert_allclose(np.asarray(after[name]), value * 0.5 / norm, rtol=1e-5)


def test_no_sync_leaves_the_explicit_synchronisation_out() -> None:
    calls: list[str] = []
    hooks = Hooks(lambda wrapped: contextlib.nullcontext(), lambda wrapped: calls.append("synchronised"))
    model = spec(Linear("fc", 3, 2))
    replica = replica_of(model, initial_of(model), hooks=hooks)
    with replica.no_sync():
        replica.backward(Batch(X, T))
    assert calls == []
    replica.backward(Batch(X, T))
    assert calls == ["synchronised"]


def test_wrapper_without_no_sync_says_what_to_do() -> None:
    model = spec(Linear("fc", 3, 2))
    replica = replica_of(model, initial_of(model))
    with pytest.raises(NotImplementedError, match=r"Chain has no no_sync.*torch_adapter\(no_sync"), replica.no_sync():
        pass


# ------------------------------------------------------------------------------------------------------------- adapter


def made_by(wrap: Any, options: Mapping[str, Any]) -> Replica:
    """What a one-rank adapter without communication builds."""
    adapter = torch_adapter.torch_adapter("mine", wrap, start=lambda context: None)
    facets = adapter.connect(RankContext(0, 1, 0, 1))
    assert facets.make_replica is not None
    model = spec(Linear("fc", 3, 2))
    return facets.make_replica(model, initial_of(model), OptimizerSpec(), options)


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """connect() exports the rank's variables; they end with the test."""
    names = (
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCH_CPP_LOG_LEVEL",
    )
    for name in names:
        monkeypatch.setenv(name, "0")


def test_facets_follow_from_what_is_given() -> None:
    adapter = torch_adapter.torch_adapter("mine", lambda module: module)
    assert adapter.capabilities.facets == {"replica"}
    assert adapter.capabilities.checkpoint
    adapter = torch_adapter.torch_adapter("mine", sampler=torch_adapter.torch_sampler)
    assert adapter.capabilities.facets == {"sampler"}


def test_options_are_the_further_parameters_of_wrap() -> None:
    seen: list[float] = []

    def wrap(module: Any, bucket_cap_mb: float = 25.0) -> Any:
        seen.append(bucket_cap_mb)
        return module

    made_by(wrap, {})
    made_by(wrap, {"bucket_cap_mb": 1.0})
    assert seen == [25.0, 1.0]
    with pytest.raises(ValueError, match="unknown options bucket_cap; this implementation has bucket_cap_mb"):
        made_by(wrap, {"bucket_cap": 1.0})


def test_importing_the_adapter_does_not_import_torch() -> None:
    modules = (
        "ddpcheck.torch_adapter, ddpcheck_implementations.torch_ddp, ddpcheck_implementations.torch_steps.adapters"
    )
    root = Path(__file__).parents[1]
    subprocess.run(
        [sys.executable, "-c", f"import {modules}, sys; sys.exit('torch' in sys.modules)"],
        env={"PYTHONPATH": f"{root / 'harness'}:{root / 'implementations'}"},
        check=True,
        timeout=60,
    )


# ------------------------------------------------------------------------------------------------------ named models


def test_resnet18_has_eleven_million_parameters_and_takes_square_images() -> None:
    from ddpcheck_implementations.resnet import ResNet18

    with torch.device("meta"):
        assert sum(p.numel() for p in ResNet18().parameters()) == 11_172_810
    narrow = ResNet18(width=4)
    assert narrow(torch.zeros(2, 64)).shape == (2, 10)
    with pytest.raises(ValueError, match="65 features are no square image"):
        narrow(torch.zeros(2, 65))


def test_deep_mlp_has_sixteen_linear_layers() -> None:
    from ddpcheck_implementations.torch_steps.deep_mlp import deep_mlp

    module = deep_mlp(width=8)
    assert sum(isinstance(layer, torch.nn.Linear) for layer in module.modules()) == 16
    assert module(torch.zeros(3, 64)).shape == (3, 10)
