"""Each program of the repository, besides the command line, starts: --help ends with status 0."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from ddpcheck.job import Job
from ddpcheck.session import Session

TESTS = Path(__file__).parent
PROGRAMS = [
    *sorted(path.relative_to(TESTS).as_posix() for path in TESTS.glob("*/run.py")),
    "audit/matrix.py",
    "chaos/command_lines.py",
    "documented.py",
    "false_alarms/alone.py",
    "gate_study.py",
    "mismatch_table.py",
    "../benchmarks/audit_cost.py",
]
NEEDS = {"mutation/run.py": "cosmic_ray"}


@pytest.mark.parametrize("program", PROGRAMS)
def test_program_shows_its_help(program: str) -> None:
    if program in NEEDS and find_spec(NEEDS[program]) is None:
        pytest.skip(f"{NEEDS[program]} is not installed")
    ended = subprocess.run([sys.executable, TESTS / program, "--help"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.lower().startswith("usage: ")


@pytest.mark.parametrize(
    "family", ["collectives", "sampler", "metrics", "gradient", "replica", "trainer", "scores", "streams"]
)
def test_drawn_fault_starts_its_ranks(family: str) -> None:
    with Session(f"{TESTS / 'drawn_faults/adapters.py'}:{family}_0_0", 1) as session:
        assert session.run(Job(1, ())).completed
