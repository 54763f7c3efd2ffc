"""Fixtures of pytest for tests of the pytest plugin itself; what tests share is closed at the end."""

import os
import signal
import sys
from collections.abc import Iterator

import pytest

# tox sets it, and all ranks would iterate over sets in one order
os.environ.pop("PYTHONHASHSEED", None)

pytest_plugins = ["pytester"]


@pytest.fixture
def heard() -> Iterator[None]:
    """Processes hear SIGHUP, also where the tests run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def pytest_sessionfinish() -> None:
    if "sessions" in sys.modules:  # tests of the wheel run where ddpcheck is not installed
        sys.modules["sessions"].TEMPLATES.close()
