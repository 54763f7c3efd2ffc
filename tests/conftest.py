"""Fixtures for tests of the pytest plugin; closes resources that tests share."""

import os
import signal
import sys
from collections.abc import Iterator

import pytest

# tox sets it; with one hash seed all ranks would iterate over sets in the same order
os.environ.pop("PYTHONHASHSEED", None)

pytest_plugins = ["pytester"]


@pytest.fixture
def heard() -> Iterator[None]:
    """Processes receive SIGHUP, even if the tests run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def pytest_sessionfinish() -> None:
    if "sessions" in sys.modules:  # tests of the wheel run without ddpcheck in this environment
        sys.modules["sessions"].TEMPLATES.close()
