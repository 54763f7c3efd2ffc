"""Fixtures of pytest for tests of the pytest plugin itself; what tests share is closed at the end."""

import os
import sys

# tox sets it, and all ranks would iterate over sets in one order
os.environ.pop("PYTHONHASHSEED", None)

pytest_plugins = ["pytester"]


def pytest_sessionfinish() -> None:
    if "sessions" in sys.modules:  # tests of the wheel run where ddpcheck is not installed
        sys.modules["sessions"].TEMPLATES.close()
