"""The version of the installed torch, without importing it."""

from __future__ import annotations

import importlib.metadata

import pytest

from ddpcheck.pytorch.version import torch_at_least


@pytest.mark.parametrize("version", ["2.12.0", "2.12.1+cu130", "2.15.0a0+git1", "3.0.0"])
def test_newer_versions_are_at_least_the_required_one(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    assert torch_at_least(2, 12)


@pytest.mark.parametrize("version", ["1.13.1", "2.4.1+cu121", "2.11.0+cpu"])
def test_older_versions_are_not_at_least_the_required_one(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    assert not torch_at_least(2, 12)


def test_without_torch_nothing_is_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert torch_at_least(2, 12)
