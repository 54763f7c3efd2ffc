"""The soak program, for one round (tests/soak/run.py)."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner
from soak.run import command

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


def test_jobs_between_faults_are_right() -> None:
    shown = CliRunner().invoke(command, ["--minutes", "0"])
    assert "1 faults" in shown.output, (shown.output, shown.exception)
    assert "0 wrong" in shown.output
