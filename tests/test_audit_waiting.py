"""A process that waits for a processor does not hang; a process that waits for another process may."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ddpcheck.audit.script_runs import computes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the state of a process is read from /proc")


def test_a_process_that_runs_computes() -> None:
    assert computes([os.getpid()])


def test_a_process_that_waits_for_input_does_not() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as waiting:
        while computes([waiting.pid]):  # until it has reached its first read
            pass
        assert not computes([waiting.pid])
    assert not computes([waiting.pid]), "it has ended"
