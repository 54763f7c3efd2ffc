"""Finds a launcher by name among the entry points of the group `ddpcheck.launchers`, of ddpcheck and other packages.

Such an entry point is a class or a function that makes a Launcher without arguments; its docstring's first sentence
describes it.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from ..docstrings_from_source import sentence
from ..launchers.launcher import Launcher
from .unknown_names import require_known

GROUP = "ddpcheck.launchers"


def installed_launchers() -> dict[str, EntryPoint]:
    """The entry point of every launcher that an installed distribution offers, by name."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def launcher_named(name: str) -> Launcher:
    """The launcher of this name. ValueError if there is none, or if it cannot be made."""
    maker = _load(name)
    try:
        made: Launcher = maker()
    except Exception as error:
        raise ValueError(f"launcher {name!r} failed: {type(error).__name__}: {error}") from error
    if not hasattr(made, "start") or not hasattr(made, "unavailable"):
        raise ValueError(
            f"launcher {name!r} is not a ddpcheck.launchers.launcher.Launcher: it needs start() and unavailable()"
        )
    return made


def description(name: str) -> str:
    """The first sentence of the launcher's docstring. ValueError as for launcher_named."""
    return sentence(_load(name))


def _load(name: str) -> Any:
    known = installed_launchers()
    entry = known[require_known(name, known, "launcher")]
    try:
        return entry.load()
    except Exception as error:
        raise ValueError(f"launcher {name!r} ({entry.value}): {type(error).__name__}: {error}") from error
