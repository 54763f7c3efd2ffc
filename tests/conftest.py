"""Fixtures for tests of the pytest plugin; closes resources that tests share."""

import importlib.util
import os
import signal
import sys
from collections.abc import Iterator

import pytest

# tox sets it; with one hash seed all ranks would iterate over sets in the same order
os.environ.pop("PYTHONHASHSEED", None)

pytest_plugins = ["pytester"]

if importlib.util.find_spec("hypothesis") is not None:  # tests of the wheel run without it
    from hypothesis import HealthCheck, settings

    # a busy machine may take long over an example, and over drawing it
    settings.register_profile("tests", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("tests")


@pytest.fixture
def heard() -> Iterator[None]:
    """Processes receive SIGHUP, even if the tests run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def pytest_sessionfinish() -> None:
    if "sessions" in sys.modules:  # tests of the wheel run without ddpcheck in this environment
        sys.modules["sessions"].TEMPLATES.close()
