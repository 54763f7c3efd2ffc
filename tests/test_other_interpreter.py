"""Ranks with another interpreter path import their own code, and nothing from the driver's folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import ddpcheck
from ddpcheck import Job, Session, StartFailed
from ddpcheck.job import AllReduce, TensorSpec
from ddpcheck.ranks.rank_interpreter import Interpreter

HARNESS = Path(ddpcheck.__file__).parents[1]
MINIMAL = Path(__file__).with_name("minimal_adapter.py")
JOB = Job(2, (AllReduce(TensorSpec((1,), "float64", "powers")),))

ELSEWHERE = """\
import dataclasses
from pathlib import Path

import numpy as np

import there
from ddpcheck import Facets
from minimal_adapter import Star, adapter as minimal

class Told(Star):
    def all_reduce(self, array, op="sum", *, group=None):
        super().all_reduce(array, op)
        return np.full(array.shape, there.NUMBER + 1000 * (Path.cwd() == Path(there.__file__).parent), array.dtype)

def connect(context):
    return Facets(rank=context.rank, world_size=context.world_size, collectives=Told(context))

adapter = dataclasses.replace(minimal, connect=connect)
"""


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two folders with a module `there` that differs in a number; this process's working folder is the first."""
    made = [tmp_path / "first", tmp_path / "second"]
    for number, tree in enumerate(made, start=1):
        tree.mkdir()
        (tree / "there.py").write_text(f"NUMBER = {number}\n")
        (tree / "elsewhere.py").write_text(ELSEWHERE)
    monkeypatch.chdir(made[0])
    return made


def result(home: Interpreter) -> float:
    with Session(f"{MINIMAL}:adapter", 2, home=home) as session:
        trace = session.run(JOB)
    assert trace.completed, trace.first_failure
    return float(trace.ranks[0].values(0)["result"][0])


def test_each_home_has_its_own_code(trees: list[Path]) -> None:
    homes = [Interpreter("elsewhere:adapter", (tree, MINIMAL.parent, HARNESS), tree) for tree in trees]
    assert [result(home) for home in homes] == [1001, 1002]


def test_the_drivers_folder_is_not_looked_into(trees: list[Path]) -> None:
    away = Interpreter("elsewhere:adapter", (MINIMAL.parent, HARNESS), trees[1])
    with pytest.raises(StartFailed, match="no module 'elsewhere'"):
        result(away)


def test_an_interpreter_that_is_not_there_is_told(tmp_path: Path) -> None:
    home = Interpreter("minimal_adapter:adapter", (MINIMAL.parent, HARNESS), tmp_path, str(tmp_path / "python"))
    with pytest.raises(FileNotFoundError):
        result(home)
    assert sys.executable != home.python
