"""Fixtures of pytest for tests of the pytest plugin itself; what all tests share is closed at the end."""

from sessions import TEMPLATES

pytest_plugins = ["pytester"]


def pytest_sessionfinish() -> None:
    TEMPLATES.close()
