"""What a script's source says of a reduced value: a mean over ranks, or a sum."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
from ddpcheck.audit.recorder.means_over_ranks import (
    is_divided_by_world_size,
    metric_that_is_no_mean,
    numbers_that_divide,
)

MEANS = (
    "x = mean\nall_reduce(x)\nx /= world",
    "x = mean\nall_reduce(x)\nprint(x.item() / get_world_size())",
    "y = 100.0 * mean\nx = mean\nall_reduce(tensor=x)\nx.div_(float(world))",
    "me.x = mean\nall_reduce(me.x)\nme.x = me.x / me.world_size",
    "x = [mean, samples]\nx[0] = x[0] / x[1]; all_reduce(x)\ny = x[0] / world",
    "def shared(t, n):\n    t = t + 0\n    all_reduce(t)\n    t /= n\n    return t\nx = shared(mean, world)",
)
SUMS = (
    "x = mean\nall_reduce(x)\nx /= samples",
    "x = mean\nall_reduce(x)",
    "x = mean\nx = x * share\nall_reduce(x)\nx /= world",
    "x = mean\nx *= share\nall_reduce(x)\nx /= world",
    "x = mean\ny = x / world\nall_reduce(x)",
    "x = mean\nall_reduce(x)\nother = samples / world",
    "x = mean\ny = 1.0\nall_reduce(x)\ny /= world",
    "all_reduce(mean + 0)",
    "x = [mean, samples]\nall_reduce(x)\ny = (x[0] / world) / (x[1] / world)",
)


def averaged(folder: Path, source: str) -> list[bool]:
    told: list[bool] = []
    file = folder / "script.py"
    file.write_text(source)

    def all_reduce(tensor: object) -> None:
        told.append(is_divided_by_world_size("all_reduce", sys._getframe(1), 2))

    class Tensor(float):
        def item(self) -> float:
            return float(self)

        def div_(self, by: float) -> None: ...

    names = {"all_reduce": all_reduce, "mean": Tensor(0.5), "world": 2, "get_world_size": lambda: 2, "samples": 75}
    names |= {"share": 0.9, "me": SimpleNamespace(world_size=2)}
    exec(compile(source, str(file), "exec"), names)
    return told


@pytest.mark.parametrize(("source", "expected"), [*((each, True) for each in MEANS), *((each, False) for each in SUMS)])
def test_a_mean_over_ranks_is_divided_by_the_world_size(tmp_path: Path, source: str, expected: bool) -> None:
    assert averaged(tmp_path, source) == [expected]


def test_a_script_whose_source_is_not_there_says_nothing(tmp_path: Path) -> None:
    told: list[bool] = []
    names = {"all_reduce": lambda x: told.append(is_divided_by_world_size("all_reduce", sys._getframe(1), 2))}
    exec(compile("x = 1.0\nall_reduce(x)\nx /= 2", "<nowhere>", "exec"), names)
    assert told == [False]


def read(folder: Path, source: str, **names: object) -> tuple[str, list[float]]:
    """What the source says of its call to all_reduce: the metric, and the numbers that divide the result."""
    told: list[tuple[str, list[float]]] = []
    file = folder / "script.py"
    file.write_text(source)

    def all_reduce(*values: object, **options: object) -> None:
        frame = sys._getframe(1)
        told.append((metric_that_is_no_mean("all_reduce", frame), numbers_that_divide("all_reduce", frame)))

    names |= {"all_reduce": all_reduce, "reduce": all_reduce, "auroc": lambda *of: 0.5, "world": 2, "batches": [1, 2]}
    exec(compile(source, str(file), "exec"), names)
    return told[-1]


@pytest.mark.parametrize(
    ("source", "metric"),
    [
        ("x = auroc(batches)\nall_reduce(x)", "auroc"),
        ("val_f1 = 0.25 * 2\nx = sum([val_f1])\nall_reduce(x)", "val_f1"),
        ("p = r = 0.5\nf1 = 2 * p * r / (p + r)\nall_reduce(f1)", "f1"),
        ("for epoch in batches:\n    f1 = auroc(batches)\n    all_reduce(f1)", "auroc"),
        ("f1 = 0.0\nfor batch in batches:\n    f1 += auroc(batch)\nall_reduce(f1)", ""),
        ("f1_sum = 3.0\nx = f1_sum / len(batches)\nall_reduce(x)", ""),
        ("accuracy = 0.5\nall_reduce(accuracy)", ""),
    ],
)
def test_metrics_that_are_no_means(tmp_path: Path, source: str, metric: str) -> None:
    """A sum over batches is a mean of the batches' values on one process, too."""
    assert read(tmp_path, source)[0] == metric


@pytest.mark.parametrize(
    ("source", "numbers"),
    [
        ("x = right\nall_reduce(x)\nx / seen", [64.0]),
        ("x = right\nall_reduce(x)\nseen = seen * 2\nx / seen", []),
        ("x = right\nall_reduce(x)\nx / len(batches)", []),
        ("x = right\nreduce(x)\nx / seen", [64.0]),
    ],
    ids=["own count", "count that is changed later", "length", "library's reduce"],
)
def test_numbers_that_divide_a_sum(tmp_path: Path, source: str, numbers: list[float]) -> None:
    assert read(tmp_path, source, right=48.0, seen=64)[1] == numbers
