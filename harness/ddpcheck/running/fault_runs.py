"""Runs faults, which are adapters that are wrong on purpose, against the checks that must catch them.

Distributions offer faults under the entry point group `ddpcheck.faults`, as functions that return KnownFaults: `faults`
for those that must be caught, `unusual` for correct adapters that must pass.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from typing import Any, Protocol

from ..check_levels import Level
from ..contract.adapter import Adapter
from ..launchers.fork_servers import ForkServers
from ..verdict import Verdict
from .adapter_lookup import reference_of
from .check_runner import CheckRunner, Settings
from .plan import RANKS_START, installed_checks, plan
from .profiles import profile_named
from .unknown_names import did_you_mean

GROUP = "ddpcheck.faults"


class KnownFault(Protocol):
    """A fault or an unusual adapter.

    name: an id. seen_in: threads or files of real code with this fault, empty if it was invented. caught_by: all checks
    that must fail; the first of them must name `cause`. world_size: the smallest at which the fault shows. family: its
    group. deep: whether it shows in the deep profile only.
    """

    @property
    def name(self) -> str: ...
    @property
    def seen_in(self) -> tuple[str, ...]: ...
    @property
    def caught_by(self) -> tuple[str, ...]: ...
    @property
    def cause(self) -> str: ...
    @property
    def adapter(self) -> Adapter: ...
    @property
    def world_size(self) -> int: ...
    @property
    def family(self) -> str: ...
    @property
    def deep(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class FaultOutcome:
    """The outcome of one fault.

    first: the first failure, in the order of `ddpcheck check`; seconds: the time until then, with the start of the
    ranks. failed: every check that failed. missed: checks that should have failed, and passed. causes: the ids of all
    causes that these failures named.
    """

    name: str
    seen_in: tuple[str, ...]
    family: str
    world_size: int
    first: Verdict | None
    seconds: float
    failed: tuple[str, ...]
    missed: tuple[str, ...]
    causes: tuple[str, ...]

    @property
    def caught(self) -> bool:
        return self.first is not None and not self.missed

    def to_plain(self) -> dict[str, Any]:
        made: dict[str, Any] = {name: getattr(self, name) for name in ("name", "family", "world_size", "seconds")}
        made |= {name: list(getattr(self, name)) for name in ("seen_in", "failed", "missed", "causes")}
        return {**made, "first": None if self.first is None else self.first.to_plain()}


def installed_faults(name: str = "faults") -> tuple[KnownFault, ...]:
    """Return the faults that installed distributions register under this name. ValueError if there are none."""
    found = [fault for entry in entry_points(group=GROUP, name=name) for fault in entry.load()()]
    if not found:
        raise ValueError(f"no faults are installed (entry point {name!r} of {GROUP!r}); install ddpcheck with pip")
    return tuple(found)


def run_fault(
    fault: KnownFault, settings: Settings, *, every: bool = False, fork_servers: ForkServers | None = None
) -> FaultOutcome:
    """Run checks on a fault until one fails, then those that must catch it (`caught_by`).

    every: run all checks that apply. A `deep` fault runs its `caught_by` only, in the deep profile. A failed start is a Verdict.
    """
    began = time.monotonic()
    if fault.deep:
        settings = replace(settings, profile=profile_named("deep"))
    planned = plan(reference_of(fault.adapter), (fault.world_size,), installed_checks())
    items = [item for item in planned if not item.skip]
    first, seconds = None, 0.0
    verdicts: list[Verdict] = []
    with CheckRunner(
        items[0].adapter,
        items[0].reference,
        fault.world_size,
        replace(settings, most_hangs=None, level=Level.FULL),
        fork_servers=fork_servers,
    ) as ranks:
        for item in items:
            named_only = (first is not None and not every) or fault.deep
            if named_only and item.check.name not in fault.caught_by:
                continue
            verdict = ranks.verdict(item)
            verdicts.append(verdict)
            if first is None and not verdict.ok:
                first, seconds = verdict, time.monotonic() - began
    failed = tuple(verdict.check for verdict in verdicts if verdict.status in ("failed", "hung"))
    started = first is None or first.check != RANKS_START.name  # if not, no other check can run
    missed = tuple(name for name in fault.caught_by if started and name not in failed)
    named = (cause.id for verdict in verdicts for cause in verdict.causes)
    return FaultOutcome(
        fault.name,
        fault.seen_in,
        fault.family,
        fault.world_size,
        first,
        round(seconds, 2),
        failed,
        missed,
        causes=tuple(dict.fromkeys(named)),
    )


def select_faults(faults: Iterable[KnownFault], patterns: Iterable[str]) -> tuple[KnownFault, ...]:
    """Return the faults that match a pattern: a family, a part of it between dots, or a part of the name; all without patterns.

    ValueError if no fault matches.
    """
    every, wanted = tuple(faults), tuple(patterns)
    found = tuple(
        f for f in every if not wanted or any(p in (f.family, *f.family.split(".")) or p in f.name for p in wanted)
    )
    if not found:
        families = sorted({f.family.partition(".")[0] for f in every})
        close = did_you_mean(wanted[0], [*families, *(f.name for f in every)])
        known = f"families are {', '.join(families)}"
        raise ValueError(f"no fault matches {', '.join(wanted)}; {close or known}")
    return found
