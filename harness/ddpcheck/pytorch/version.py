"""The version of the installed torch, without importing torch, which takes a second."""

from __future__ import annotations

import importlib.metadata


def torch_at_least(major: int, minor: int) -> bool:
    """Whether torch is at least this version; True without torch, for which the answer is not used."""
    try:
        have = importlib.metadata.version("torch").split(".")
    except importlib.metadata.PackageNotFoundError:
        return True
    return (int(have[0]), int(have[1])) >= (major, minor)
