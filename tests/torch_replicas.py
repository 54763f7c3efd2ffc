"""Replicas of one process, built by torch from a ModelSpec, for the tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ddpcheck.job import OptimizerSpec  # noqa: E402
from ddpcheck.models.spec import ModelSpec  # noqa: E402
from ddpcheck.pytorch.auxiliary_terms import loss_of_model  # noqa: E402
from ddpcheck.pytorch.model import build_model  # noqa: E402
from ddpcheck.pytorch.replica import Hooks, TorchReplica  # noqa: E402
from ddpcheck.seeded_values import Array  # noqa: E402

Named = Mapping[str, Array | None]

X = np.array([[1.0, -2.0, 0.5], [0.25, 3.0, -1.0]])
T = np.array([[1.0, 0.5], [-1.0, 2.0]])


def replica_of(
    model: ModelSpec,
    initial: Mapping[str, Array],
    optimizer: OptimizerSpec | None = None,
    hooks: Hooks | None = None,
    *,
    unfreezing: bool = False,
) -> TorchReplica:
    """The module as its own wrapper, as in one process."""
    module = build_model(model, initial)
    return TorchReplica(
        module,
        module,
        loss_of_model(model, module),
        optimizer or OptimizerSpec(),
        hooks or Hooks(),
        takes_branches=bool(model.branches),
        device=torch.device("cpu"),
        unfreezing=unfreezing,
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
