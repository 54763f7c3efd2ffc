"""Which torch is installed, without importing it, as that takes a second."""

from __future__ import annotations

import importlib.metadata


def torch_at_least(major: int, minor: int) -> bool:
    """True without torch, too, where nothing asks again."""
    try:
        have = importlib.metadata.version("torch").split(".")
    except importlib.metadata.PackageNotFoundError:
        return True
    return (int(have[0]), int(have[1])) >= (major, minor)
