"""Recorded states of optimizers: equal digests for equal values."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch  # the marker above must come first

from ddpcheck.audit.recorder.optimizer_states import _digest, _steps

MEAN = [0.5, -1.0]


def adam(**changes: Any) -> dict[str, Any]:
    return {"step": torch.tensor(3.0), "exp_avg": torch.tensor(MEAN), **changes}


def test_states_with_equal_values_have_equal_digests() -> None:
    first = _digest(adam())
    for same in (adam(step=3), adam(step=torch.tensor([3])), adam(max_exp_avg_sq=None), dict(reversed(adam().items()))):
        assert _digest(same) == first
    for other in (adam(step=4), adam(exp_avg=torch.tensor([0.5, -1.1])), adam(ema=torch.zeros(2)), {"step": 3}):
        assert _digest(other) != first
    assert _digest({}) == _digest({"momentum_buffer": None}) == ""
    assert _digest({"made_by": object()}) == "", "its text has an address, which differs between processes"


def test_steps_that_a_state_counts() -> None:
    assert [_steps(each) for each in (adam(), adam(step=3), adam(step=None), {})] == [3, 3, 0, 0]
