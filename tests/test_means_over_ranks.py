"""What a script's source says of a reduced value: a mean over ranks, or a sum."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
from ddpcheck.audit.recorder.means_over_ranks import is_divided_by_world_size

MEANS = (
    "x = mean\nall_reduce(x)\nx /= world",
    "x = mean\nall_reduce(x)\nprint(x.item() / get_world_size())",
    "y = 100.0 * mean\nx = mean\nall_reduce(tensor=x)\nx.div_(float(world))",
    "me.x = mean\nall_reduce(me.x)\nme.x = me.x / me.world_size",
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
