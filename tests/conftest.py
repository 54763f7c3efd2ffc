"""Fixtures of pytest for tests of the pytest plugin itself."""

pytest_plugins = ["pytester"]
