"""The first value of a loss of which the ranks do not have a part."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ddpcheck.audit.values_apart import first_value_apart

torch = pytest.importorskip("torch")

Loss = Callable[[Any, Any], Any]
FEATURES = 5


def recorded(folder: Path, x: Any, weight: Any, loss: Loss) -> None:
    """Keep the values of one loss, as a process of an audit does."""
    from torch.utils._python_dispatch import TorchDispatchMode

    from ddpcheck.audit import tensor_files
    from ddpcheck.audit.recorder.operation_values import OperationValues

    def keep(name: str, value: Any) -> None:
        tensor_files.write(folder / f"{name}.tensors", value)

    lines = itertools.count(1)
    run: Any = SimpleNamespace(
        in_backward=False, loading=0, full=True, started=True, step=0, backwards=0, journal=SimpleNamespace(keep=keep),
        line=lambda: f"train.py:{next(lines)}",
    )  # fmt: skip
    values = OperationValues(run)

    class Watching(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            values.see(func, args, result)
            return result

    with Watching():
        made = loss(x, weight)
    values.close(made)


def apart(folder: Path, loss: Loss) -> str:
    """The operation; empty if there is none."""
    generator = torch.Generator().manual_seed(7)
    ranks = [torch.randn(4, FEATURES, generator=generator) for _ in range(2)]
    weight = torch.randn(FEATURES, 3, generator=generator, requires_grad=True)
    whole = torch.cat(ranks)
    inputs = {"real/0": ranks[0], "real/1": ranks[1], "one/0": whole, "noise/0": torch.roll(whole, 1, 0)}
    for name, x in inputs.items():
        (folder / name).mkdir(parents=True)
        recorded(folder / name, x, weight, loss)
    found = first_value_apart(folder, 2, 0, 0, half=False)
    return found.operation if found is not None else ""


def with_a_deviation_for_the_log(x: Any, weight: Any) -> Any:
    x.std(0)
    return (x @ weight).square().mean()


@pytest.mark.parametrize(
    ("loss", "operation"),
    [
        (lambda x, w: (x @ w).square().mean(), ""),
        (lambda x, w: (x @ w).square().sum(), ""),
        (lambda x, w: (w.square().sum() + (x @ w).t().reshape(-1)).square().mean(), ""),
        (lambda x, w: ((x @ w) @ (x @ w).t()).square().mean(), "mm"),
        (lambda x, w: (((x - x.mean(0)) @ w).square()).mean(), "sub"),
        (lambda x, w: ((x / x.std(0)) @ w).square().mean(), "std"),
        (lambda x, w: (x @ w).square().mean() / x.square().mean(), "div"),
        (lambda x, w: (x.sort(0).values @ w)[0].square().mean(), "sort"),
        (with_a_deviation_for_the_log, ""),
    ],
)
def test_the_first_operation_whose_result_is_not_the_ranks(tmp_path: Path, loss: Loss, operation: str) -> None:
    assert apart(tmp_path, loss) == operation


def test_infinite_values_as_in_a_mask_are_compared_without_a_warning(tmp_path: Path) -> None:
    def loss(x: Any, weight: Any) -> Any:
        mask = torch.full((3,), float("-inf")).masked_fill(torch.tensor([True, False, True]), 0.0)
        return (x @ weight + mask).exp().mean()

    assert apart(tmp_path, loss) == ""


def test_nothing_is_told_without_a_record(tmp_path: Path) -> None:
    assert first_value_apart(tmp_path, 2, 0, 0, half=False) is None
