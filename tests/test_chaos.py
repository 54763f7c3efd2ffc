"""A short chaos campaign: some injections, each into one drawn command (tests/chaos/run.py)."""

from __future__ import annotations

import json
import random
import signal
import sys
from pathlib import Path

import pytest
import sessions
from chaos import forked_driver
from chaos.forked_driver import Forked
from chaos.injections import INJECTIONS
from chaos.report import page, recorded
from chaos.run import trial

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

SHORT = ("SIGKILL to a rank", "SIGKILL to the driver", "a rank that exits")


@pytest.mark.parametrize("name", SHORT)
def test_interrupted_command_ends_and_leaves_nothing_behind(name: str) -> None:
    (injection,) = (each for each in INJECTIONS if each.name == name)
    one = trial(injection, random.Random(name), sessions.TEMPLATES)
    assert not one.problems, one
    assert f"| {name} | 1 |" in page([one])


def started(folder: Path, *words: str) -> Forked:
    with (folder / "said").open("w+b") as said:
        return forked_driver.start(words, folder, {"CHAOS_TEST": "1"}, said)


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [(("--version",), 0, "ddpcheck, version"), (("check", "nosuch"), 2, "'nosuch' is not a known adapter")],
)
def test_a_fork_runs_a_command_to_its_end(tmp_path: Path, words: tuple[str, ...], status: int, text: str) -> None:
    assert started(tmp_path, *words).wait(60) == status
    assert text in (tmp_path / "said").read_text()


def test_a_fork_that_is_killed_has_its_signal_as_status(tmp_path: Path) -> None:
    forked = started(tmp_path, "train", "numpy_sockets", "-n", "1", "--epochs", "100000", "--no-compare")
    with pytest.raises(TimeoutError):
        forked.wait(0)
    forked.kill()
    assert forked.wait(60) == -signal.SIGKILL


def test_records_of_several_runs_make_one_page(tmp_path: Path) -> None:
    stored = Path(__file__).parent / "chaos" / "trials.jsonl"
    record = tmp_path / "record.jsonl"
    older = json.loads(stored.read_text(encoding="utf-8").splitlines()[0])
    record.write_text("\n".join(json.dumps(one) for one in (older, older | {"commit": "abc", "processor": 2.0})))
    shown = page(recorded(record))
    assert "unknown 1, abc 1" in shown
    assert "1 of them took 2.0 s of processor time" in shown
    assert f"| {older['injection']} | 2 |" in shown
