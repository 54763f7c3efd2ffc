"""Each failure on a page of markdown has the command that runs it again, which shows the same failure."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

import ddpcheck_properties
from ddpcheck.cli import main

# pytester removes modules from sys.modules that a run in this process has imported, and NumPy cannot be imported twice
assert ddpcheck_properties.CHECKS

MINE = """
from dataclasses import replace
from minimal_adapter import Star, adapter as right

class Raising(Star):
    def all_reduce(self, array, op="sum", *, group=None):
        raise ValueError("no route")

def connect(context):
    return replace(right.connect(context), collectives=Raising(context))

def connect_raises(context):
    raise ValueError("no network")

adapter = replace(right, name="raising", connect=connect)
not_started = replace(right, name="not started", connect=connect_raises)
"""


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE, encoding="utf-8")


@pytest.mark.parametrize(
    ("attribute", "command"),
    [
        ("adapter", "ddpcheck replay kept/raising-w1-check_all_reduce_sums_exactly.json --adapter mine.py:adapter"),
        (
            "not_started",
            "ddpcheck check mine.py:not_started --world-size 1 --check check_ranks_start --profile quick --deadline 20.0",
        ),
    ],
)
def test_the_command_of_a_failure_shows_it_again(tmp_path: Path, attribute: str, command: str) -> None:
    """A failure with a Job, and one without."""
    words = ["check", f"{tmp_path}/mine.py:{attribute}", "-w", "1", "-c", "check_all_reduce_sums_exactly", "-q"]
    words += ["--profile", "quick", "--deadline", "20", "--failures", f"{tmp_path}/kept", "--markdown", "page.md"]
    assert CliRunner().invoke(main, words).exit_code == 1
    page = Path("page.md").read_text(encoding="utf-8")
    assert re.findall(r"^Run again:\n\n```sh\n(.*)\n```$", page, re.MULTILINE) == [command]
    assert 'File "mine.py", line' in page
    assert str(tmp_path) not in page
    again = CliRunner().invoke(main, shlex.split(command)[1:])
    assert again.exit_code == 1
    assert "ValueError: no " in again.output
