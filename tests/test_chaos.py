"""A short chaos campaign: some injections, each into one drawn command (tests/chaos/run.py)."""

from __future__ import annotations

import random
import sys

import pytest
import sessions
from chaos.injections import INJECTIONS
from chaos.report import page
from chaos.run import trial

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

SHORT = ("SIGKILL to a rank", "SIGKILL to the driver", "a rank that exits")


@pytest.mark.parametrize("name", SHORT)
def test_interrupted_command_ends_and_leaves_nothing_behind(name: str) -> None:
    (injection,) = (each for each in INJECTIONS if each.name == name)
    one = trial(injection, random.Random(name), sessions.TEMPLATES)
    assert not one.problems, one
    assert f"| {name} | 1 |" in page([one])
