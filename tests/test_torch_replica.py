"""A replica whose module is its own wrapper, in one process."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn.modules.module import register_module_forward_pre_hook  # noqa: E402
from torch_replicas import T, X, assert_close, initial_of, replica_of, spec  # noqa: E402

from ddpcheck.contract.adapter import Batch  # noqa: E402
from ddpcheck.contract.optional_methods import BackwardBroken  # noqa: E402
from ddpcheck.job import OptimizerSpec  # noqa: E402
from ddpcheck.models.spec import Embedding, Linear, mlp  # noqa: E402
from ddpcheck.pytorch.replica import Hooks, TorchReplica  # noqa: E402


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


def test_a_batch_is_used_where_it_lies_and_copied_where_torch_cannot() -> None:
    model = spec(Linear("fc", 3, 2))
    replica = replica_of(model, initial_of(model))
    read_only = X.copy()
    read_only.flags.writeable = False
    given = [X.copy(), X.copy()[:, ::-1], read_only]
    shown: list[Any] = []  # the inputs of the model, and then of its one layer
    with register_module_forward_pre_hook(lambda _, arguments: shown.append(arguments[0].numpy())):
        for inputs in given:
            replica.backward(Batch(inputs, T))
    assert [np.shares_memory(a, b) for a, b in zip(shown[::2], given, strict=True)] == [True, False, False]


def test_a_sparse_gradient_does_not_depend_on_the_batchs_memory() -> None:
    model = spec(Embedding("embedding", 7, 3, sparse=True), Linear("fc", 3, 2))
    replica = replica_of(model, initial_of(model))
    ids = np.array([4, 5])
    replica.backward(Batch(ids, T))
    kept = {name: np.array(value) for name, value in replica.gradients().items()}
    ids[:] = 0
    assert_close(replica.gradients(), kept)
    assert np.flatnonzero(kept["embedding.weight"].any(1)).tolist() == [4, 5]


def assert_goes_on_alike(first: TorchReplica, second: TorchReplica) -> None:
    """The second replica, resumed from the first after a step, takes the same next step."""
    first.backward(Batch(X, T))
    first.step()
    second.load_state(first.state())
    for replica in (first, second):
        replica.zero_grad()
        replica.backward(Batch(X, T))
        replica.step()
    assert_close(second.parameters(), first.parameters())


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_resumed_replica_goes_on_alike(name: Any) -> None:
    model = mlp((3, 4, 2), dtype="float64")
    optimizer = OptimizerSpec(name, lr=0.1, momentum=0.5 if name == "sgd" else 0.0)
    first, second = (
        replica_of(model, initial_of(model), optimizer),
        replica_of(model, model.initial(9, "real"), optimizer),
    )
    assert_goes_on_alike(first, second)
    assert any(key.startswith("optimizer/") for key in first.state())


def test_an_optimizer_of_ones_own_is_resumed_though_its_groups_are_in_another_order() -> None:
    def in_groups(module: Any, settings: OptimizerSpec) -> Any:
        groups: list[dict[str, Any]] = [{"params": [p for p in module.parameters() if p.ndim == n]} for n in (1, 2)]
        return torch.optim.Adam(groups, lr=settings.lr, amsgrad=True)

    model = mlp((3, 4, 2), dtype="float64")
    first, second = (
        replica_of(model, model.initial(seed, "real"), OptimizerSpec("adam"), Hooks(optimizer=in_groups))
        for seed in (3, 9)
    )
    assert_goes_on_alike(first, second)
    assert "optimizer/fc1.weight/max_exp_avg_sq" in first.state()


def test_a_clip_of_ones_own_takes_the_wrapped_module() -> None:
    def clip(module: Any, max_norm: float) -> Any:
        return torch.nn.utils.clip_grad_value_(module.parameters(), max_norm) or torch.tensor(7.0)

    model = spec(Linear("fc", 3, 2), loss="linear")
    replica = replica_of(model, initial_of(model), hooks=Hooks(clip=clip))
    replica.backward(Batch(X, T))
    assert replica.clip(0.125) == 7
    assert {float(np.abs(np.asarray(value)).max()) for value in replica.gradients().values()} == {0.125}


def test_a_predict_of_ones_own_takes_the_wrapped_module_in_evaluation_mode() -> None:
    def predict(module: Any, inputs: torch.Tensor) -> torch.Tensor:
        assert not module.training
        return module(inputs) + 7

    model = spec(Linear("fc", 3, 2), loss="linear")
    plain, own = (replica_of(model, initial_of(model), hooks=hooks) for hooks in (Hooks(), Hooks(predict=predict)))
    np.testing.assert_array_equal(own.predict(Batch(X, T)), plain.predict(Batch(X, T)) + 7)


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


def test_layers_that_are_unfrozen_learn_and_those_frozen_do_not() -> None:
    model = spec(Linear("fc1", 3, 4, frozen=True), Linear("fc2", 4, 2))
    replica = replica_of(model, initial_of(model), OptimizerSpec(lr=1.0, momentum=0.5), unfreezing=True)
    replica.set_trainable(["fc1"], True)
    replica.set_trainable(["fc2"], False)
    before = replica.parameters()
    replica.backward(Batch(X, T))
    replica.step()
    after = replica.parameters()
    assert {name for name, value in replica.gradients().items() if value is not None} == {"fc1.weight", "fc1.bias"}
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed == {"fc1.weight", "fc1.bias"}


def test_a_backward_that_breaks_has_some_of_its_gradients_and_lets_the_next_one_alone() -> None:
    calls: list[str] = []
    model = spec(Linear("fc1", 3, 4), Linear("fc2", 4, 2))
    replica = replica_of(
        model, initial_of(model), hooks=Hooks(after_backward=lambda wrapped: calls.append("synchronised"))
    )
    with pytest.raises(BackwardBroken):
        replica.break_backward(Batch(X, T))
    there = {name for name, value in replica.gradients().items() if value is not None}
    assert there >= {"fc2.weight", "fc2.bias"}
    assert "fc1.bias" not in there
    assert calls == []
    replica.zero_grad()
    replica.backward(Batch(X, T))
    assert all(value is not None for value in replica.gradients().values())
    assert calls == ["synchronised"]


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


def test_an_engines_own_backward_runs_in_place_of_the_losss() -> None:
    calls: list[object] = []
    model = spec(Linear("fc", 3, 2))
    hooks = Hooks(backward=lambda wrapped, loss: calls.append((wrapped, loss.requires_grad)))
    replica = replica_of(model, initial_of(model), hooks=hooks)
    replica.backward(Batch(X, T))
    assert [has_graph for _, has_graph in calls] == [True]
    assert all(value is None for value in replica.gradients().values())


def test_gradients_that_an_engine_keeps_elsewhere_are_read_there() -> None:
    model = spec(Linear("fc", 3, 2))
    hooks = Hooks(gradient=lambda wrapped, parameter: torch.full_like(parameter, 7.0))
    replica = replica_of(model, initial_of(model), hooks=hooks)
    assert {float(np.max(value)) for value in replica.gradients().values() if value is not None} == {7.0}


def test_optimizer_with_replaced_parameters_is_reported() -> None:
    model = spec(Linear("fc", 3, 2))
    replica = replica_of(model, initial_of(model))
    layer = replica._module.get_submodule("fc") if hasattr(replica._module, "fc") else next(replica._module.children())
    layer.weight = torch.nn.Parameter(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="1 of 2 parameters of the optimizer are no longer those of the module"):
        replica.state()
