"""What a script's source says of the divisors of a value before its reduction."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
import torch

from ddpcheck.audit.recorder.divisors_before import divided_before

LOOP = "total = 0.0\nfor loss in losses:\n    total += loss * 4\n"
HELPER = "def mean(value):\n    x = tensor(float(value))\n    all_reduce(x)\n    return x / world\n"


def divisors(folder: Path, source: str) -> list[tuple[float | None, int]]:
    """The divisor of each value that the call reduces, and the line."""
    told: list[tuple[float | None, int]] = []
    file = folder / "script.py"
    file.write_text(source)

    def all_reduce(*values: object, **options: object) -> None:
        told.extend((each.by, each.line) for each in divided_before("all_reduce", sys._getframe(1), 2))

    class Tensor(float):
        def div_(self, by: float) -> None: ...

    names = {
        "all_reduce": all_reduce, "tensor": lambda value: Tensor(0.5), "accuracy": float, "get_world_size": lambda: 2, "world": 2,
        "losses": [0.5, 0.25], "loader": SimpleNamespace(dataset=[0.0] * 100), "data": [0.0] * 100, "share": 0.5, "outputs": 2,
        "outer": [0.0] * 50,
    }  # fmt: skip
    exec(compile(source, str(file), "exec"), names)
    return told


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (LOOP + "x = tensor(total / len(loader.dataset))\nall_reduce(x)", [(100, 4)]),
        (HELPER + LOOP + "mean(total / len(loader.dataset))", [(100, 8)]),
        (HELPER + LOOP + "mean(value=100 * total / len(data))", [(100, 8)]),
        (HELPER + "def inner(total, n):\n    return mean(total / n)\n" + LOOP + "inner(total, len(data))", [(100, 6)]),
        (LOOP + "total /= len(data)\nall_reduce(total)", [(100, 4)]),
        (LOOP + "n = float(len(data))\nx = tensor(total)\nx.div_(n)\nall_reduce(x)", [(100, 6)]),
        ("total = 0.0\nfor loss in losses:\n    total += loss / len(data)\nall_reduce(total)", [(100, 3)]),
        ("total = 0.0\nfor loss in losses:\n    total = total + loss * 4\nall_reduce(total / len(data))", [(100, 4)]),
        (LOOP + "total = total / len(losses)\ntotal = total / world\nall_reduce(total)", [(4, 5)]),
        (LOOP + "all_reduce(total / world / len(losses))", [(4, 4)]),
        (LOOP + "all_reduce(total / (len(losses) * get_world_size()))", [(4, 4)]),
        (LOOP + "all_reduce(total / (world * len(losses)))", [(4, 4)]),
        (LOOP + "x = tensor([total / len(data), total / len(losses)])\nall_reduce(x)", [(100, 4), (2, 4)]),
        (LOOP + "x = total / max(len(data), 1)\nall_reduce(tensor=x)", [(100, 4)]),
        (LOOP + "x = total / 100 if data else 0.0\nall_reduce(x)", [(1, 0)]),
        (LOOP + "x = accuracy(total)\nall_reduce(x)", [(1, 0)]),
        ("for value in losses:\n    pass\nall_reduce(value)", [(1, 0)]),
        ("x = 0.5\nall_reduce(x)", [(1, 0)]),
    ],
)
def test_divisors_before_a_reduction(tmp_path: Path, source: str, found: list[tuple[float | None, int]]) -> None:
    assert divisors(tmp_path, source) == found


@pytest.mark.parametrize(
    "source",
    [
        LOOP + "x = total / len(data) * share\nall_reduce(x)",
        LOOP.replace("* 4", "* 4 * world") + "all_reduce(total / len(data))",
        "n = 0\n" + LOOP + "    n += 50\nall_reduce(total / n)",
        LOOP + "all_reduce(total / (len(data) * outputs))",
        LOOP + "all_reduce(total / (len(data) * 2))",
        LOOP + "all_reduce(total / outputs)",
        LOOP + "all_reduce(total / len(losses) / len(outer))",
        "def reduced(n):\n    all_reduce(1.0 / n)\nreduced(*[len(data)])",
    ],
    ids=[
        "weighted", "times the world size", "counted", "times outputs", "times a constant", "by outputs", "two lengths",
        "starred",
    ],
)  # fmt: skip
def test_divisors_that_are_not_known(tmp_path: Path, source: str) -> None:
    assert [by for by, _ in divisors(tmp_path, source)] in ([None], [])


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ("totals = ones(2) * 7\nx = totals[0] / totals[1]\nall_reduce(x)", 7),
        ("n = 7\nx = tensor(share / max(n, 1))\nall_reduce(x)", 7),
        ("n = ones(()) * 7\nx = tensor(share / n.item())\nall_reduce(x)", 7),
        ("seen = {'tokens': 7}\nx = tensor(share)\nx = x / seen['tokens']\nall_reduce(x)", 7),
        ("x = tensor(share / (outputs * 3))\nall_reduce(x)", None),
        ("x = tensor(share / accuracy(2.0))\nall_reduce(x)", None),
    ],
)
def test_the_value_of_a_divisor_at_the_reduction(tmp_path: Path, source: str, number: float | None) -> None:
    told: list[float | None] = []
    file = tmp_path / "script.py"
    file.write_text(source)

    def all_reduce(_tensor: object) -> None:
        told.extend(each.number for each in divided_before("all_reduce", sys._getframe(1), 2))

    names = {
        "all_reduce": all_reduce,
        "tensor": torch.tensor,
        "ones": torch.ones,
        "share": 0.5,
        "outputs": 2,
        "accuracy": float,
    }
    exec(compile(source, str(file), "exec"), names)
    assert told == [number]


def test_a_script_whose_source_is_not_there_has_no_divisors() -> None:
    told: list[object] = []
    names = {"all_reduce": lambda x: told.append(divided_before("all_reduce", sys._getframe(1), 2)), "count": 3}
    exec(compile("x = 1.0 / count\nall_reduce(x)", "<nowhere>", "exec"), names)
    assert told == [[]]
