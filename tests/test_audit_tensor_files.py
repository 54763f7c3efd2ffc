"""Nested tensors come out of a file as they went in."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch  # the line above must come first

from ddpcheck.audit import tensor_files


@dataclasses.dataclass
class Batch:
    tokens: Any
    names: list[str]


def test_nested_tensors_are_equal_in_all_bits(tmp_path: Path) -> None:
    whole = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    values: dict[str, Any] = {
        "plain": whole,
        "a view": whole.t()[1:],
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "empty": torch.empty(0, 3),
        "flags": torch.tensor([True, False]),
        "half": torch.ones(5, dtype=torch.bfloat16),
        "complex": torch.tensor([1 + 2j]).conj(),
        "needs a gradient": torch.ones(2, requires_grad=True),
        "not a number": torch.tensor([float("nan"), -0.0]),
    }
    path = tmp_path / "kept.tensors"
    tensor_files.write(path, [values, Batch(whole.long(), ["a"]), None])
    found, batch, nothing = tensor_files.read(path)
    assert nothing is None
    assert batch.names == ["a"]
    assert torch.equal(batch.tokens, whole.long())
    for name, value in values.items():
        assert found[name].dtype == value.dtype, name
        same = torch.equal(found[name].nan_to_num(7.0), value.detach().nan_to_num(7.0))
        assert same if value.dtype.is_floating_point else torch.equal(found[name], value), name
    found["plain"] += 1.0  # what was read can be changed
    assert torch.signbit(found["not a number"][1])
