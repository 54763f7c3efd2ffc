"""The plan of a run: every (adapter, world size, check), with the reason if it will be skipped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from ..check_levels import Level
from ..checks import Check, unmet_need
from ..contract.adapter import Adapter
from ..docstrings_from_source import sentence
from ..launchers.launcher import Launcher
from ..session import Session
from ..verdict import Status, Verdict
from .adapter_lookup import how_to_install, missing_modules, reference_of, resolve
from .guarded_import import IMPORT_SECONDS

GROUP = "ddpcheck.checks"


def check_ranks_start(session: Session) -> None:
    """All ranks start, know their rank and world size, and hand out the promised facets."""
    if session.starts == 0:
        session.start()


RANKS_START = Check("check_ranks_start", "ranks", (), sentence(check_ranks_start), check_ranks_start, Level.BASIC)
"""The first check at every world size. Without running ranks no other check can judge."""


@dataclass(frozen=True, slots=True)
class Item:
    """One check on one adapter at one world size. `skip`: the reason if it will not run.

    applies: whether the adapter's promises and the level call for the check, on whichever machine.
    """

    adapter: Adapter
    reference: str
    world_size: int
    check: Check
    skip: str = ""
    applies: bool = True

    @property
    def name(self) -> str:
        return f"{self.adapter.name}-w{self.world_size}-{self.check.name}"

    def verdict(self, status: Status, **more: Any) -> Verdict:
        """A Verdict on this item. more: its further fields."""
        return Verdict(self.adapter.name, self.world_size, self.check.name, self.check.family, status, **more)


def installed_checks() -> tuple[Check, ...]:
    """The checks that installed distributions offer. ValueError if there are none, or two of one name."""
    found = {RANKS_START.name: RANKS_START}
    for entry in entry_points(group=GROUP):
        for check in entry.load():
            if found.setdefault(check.name, check) is not check:
                raise ValueError(f"two checks have the name {check.name}; the second is from {entry.value}")
    if len(found) == 1:
        raise ValueError(f"no checks are installed (entry points of {GROUP!r}); install ddpcheck with pip")
    return tuple(found.values())


def plan(
    adapter: Adapter | str,
    world_sizes: Iterable[int],
    checks: Iterable[Check],
    launcher: Launcher | None = None,
    level: Level = Level.STANDARD,
) -> list[Item]:
    """Every item, world size by world size, with the reason for each that will be skipped."""
    made, reference = resolve(adapter if isinstance(adapter, str) else reference_of(adapter), IMPORT_SECONDS)
    chosen = tuple(check for check in checks if check is not RANKS_START)
    unusable = _unusable(made, launcher or made.launcher)
    items = []
    for world_size in world_sizes:
        refused = made.capabilities.refuses(world_size) or ""
        for check in (RANKS_START, *chosen):
            left_out = refused or unmet_need(check, made.capabilities, world_size) or _above(check, level)
            items.append(Item(made, reference, world_size, check, unusable or left_out, applies=not left_out))
    return items


def _above(check: Check, level: Level) -> str:
    return f"left out at --level {level}; it runs at {check.level}" if check.level > level else ""


def _unusable(adapter: Adapter, launcher: Launcher) -> str:
    absent = missing_modules(adapter)
    if absent:
        return f"not installed: {', '.join(absent)}; install with: {how_to_install(absent)}"
    return launcher.unavailable() or ""
