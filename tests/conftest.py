"""Fixtures of pytest for tests of the pytest plugin itself; what tests share is closed at the end."""

import sys

pytest_plugins = ["pytester"]


def pytest_sessionfinish() -> None:
    if "sessions" in sys.modules:  # tests of the wheel run where ddpcheck is not installed
        sys.modules["sessions"].TEMPLATES.close()
