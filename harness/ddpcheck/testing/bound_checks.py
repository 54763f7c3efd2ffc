"""Checks bound to an adapter and a world size: the value of `check` in a test made by the plugin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from ..check_levels import LEVELS
from ..checks import select
from ..contract.adapter import Adapter
from ..launchers.fork_servers import ForkServers
from ..printable_text import LONGEST_LINE, cut
from ..relative_paths import relative
from ..running.adapter_lookup import UnusableAdapter
from ..running.check_runner import CheckRunner, Settings
from ..running.expected_failures import ExpectedFailures
from ..running.failure_files import FailureFiles, replay_command
from ..running.plan import Item, installed_checks, plan
from ..running.profiles import profile_named
from ..running.unknown_names import require_known
from ..verdict import Verdict

_LINES = 200
"""Lines of a failure that are printed."""
_PLACES = pytest.StashKey[dict[tuple[str, int], "CheckTarget"]]()


@dataclass(eq=False)
class CheckTarget:
    """One adapter at one world size. A run has one object for each, since pytest groups tests by it."""

    adapter: Adapter
    reference: str
    world_size: int
    settings: Settings
    ranks: CheckRunner | None = field(default=None, init=False)

    def open(self, fork_servers: ForkServers) -> CheckRunner:
        self.ranks = CheckRunner(
            self.adapter, self.reference, self.world_size, self.settings, fork_servers=fork_servers
        )
        return self.ranks

    def __str__(self) -> str:
        return f"{self.adapter.name}-w{self.world_size}"


@dataclass(eq=False)
class BoundCheck:
    """Call it to run the check: it passes, fails with the diagnosis, skips, or fails as expected, with the reason."""

    item: Item
    place: CheckTarget
    expected: ExpectedFailures
    files: FailureFiles

    @property
    def name(self) -> str:
        return self.item.check.name

    def __call__(self) -> Verdict:
        __tracebackhide__ = True
        if self.place.ranks is None:
            raise RuntimeError("a bound check runs inside its own test only")
        verdict = self.place.ranks.verdict(self.item, self.expected)
        if verdict.status == "skipped":
            pytest.skip(verdict.reason)
        if verdict.status == "expected_failure":
            pytest.xfail(verdict.reason)
        if not verdict.ok:
            pytest.fail(self._text(verdict), pytrace=False)
        return verdict

    def _text(self, verdict: Verdict) -> str:
        whole = verdict.text()
        lines = whole.splitlines()
        text = "\n".join(cut(line, LONGEST_LINE) for line in lines[:_LINES])
        text += f"\n  ... {len(lines) - _LINES} more lines" if len(lines) > _LINES else ""
        if text != "\n".join(lines):
            text += f"\n  {self.files.keep_text(verdict)}"
        file, script = self.files.write(self.item.reference, verdict)
        if file is None:
            return f"{text}\n  {self.files.problem}" if self.files.problem else text
        return f"{text}\n  run again: {replay_command(file)}" + (
            f"\n  stand-alone: python {relative(script)}" if script else ""
        )


def bound_checks(
    config: pytest.Config,
    adapters: Iterable[Adapter | str],
    world_sizes: Iterable[int] | None,
    checks: Iterable[str],
    expected_failures: Mapping[str, str],
) -> list[Any]:
    """The parameter sets (place, bound check) of a test. ValueError for an unknown name. world_sizes: those of the code,
    which --ddp-world-sizes replaces.
    """
    profile = profile_named(str(config.getoption("--ddp-profile")))
    level = LEVELS[require_known(str(config.getoption("--ddp-level")), LEVELS, "level")]
    sizes = list(_sizes(config.getoption("--ddp-world-sizes")) or world_sizes or profile.world_sizes)
    deadline, seed = _seconds(str(config.getoption("--ddp-deadline"))), _seed(config.getoption("--ddp-seed"))
    settings = Settings(profile, deadline, seed, level=level)
    every = installed_checks()
    expected = ExpectedFailures(expected_failures, every)
    files = FailureFiles(config.rootpath / str(config.getoption("--ddp-failures")))
    chosen = select(every, checks)
    places = config.stash.setdefault(_PLACES, {})
    cases = []
    for adapter in adapters:
        try:
            items = plan(adapter, sizes, chosen, level=settings.level)
        except UnusableAdapter as error:
            raise ValueError(str(error)) from error
        for item in items:
            fresh = CheckTarget(item.adapter, item.reference, item.world_size, settings)
            place = places.setdefault((item.reference, item.world_size), fresh)
            marks = [pytest.mark.skip(reason=item.skip)] if item.skip else []
            cases.append(pytest.param(place, BoundCheck(item, place, expected, files), id=item.name, marks=marks))
    return cases


def _sizes(text: str | None) -> list[int]:
    try:
        return [int(part) for part in text.split(",")] if text else []
    except ValueError:
        raise ValueError(f"--ddp-world-sizes {text!r} should be world sizes such as 1,2,3") from None


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise ValueError(f"--ddp-deadline {text!r} should be seconds, such as 10 or 0.5")
    return seconds


def _seed(text: str | None) -> int | None:
    if text is not None and not text.isdecimal():
        raise ValueError(f"--ddp-seed {text!r} should be a whole number, such as 7")
    return None if text is None else int(text)
