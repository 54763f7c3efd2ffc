"""Failures of one run that seem to have one cause, and which cause to look at first.

One mistake fails many checks, at every world size, in slightly other words each time. Groups are made by the words that
stay the same; the first is the one on which the others may rest: collectives before gradients, gradients before training.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from .verdict import Verdict

_FOUNDATIONS = (
    "ranks",
    "collectives",
    "gradients",
    "accumulation",
    "unused",
    "buckets",
    "replica_sync",
    "trajectories",
    "programs",
    "sampler",
    "metrics",
    "scores",
    "randomness",
    "trainer",
)
"""Families, each before those that rest on it; others come last."""
_MANY = 4
"""A cause with fewer than one in so many of the checks that the commonest has explains little of the run."""

_NUMBERS = re.compile(r"\d+(?:\.\d+)?(?:(?:, | and | to )\d+)*")
_OPERATION = re.compile(r" in (?:make_replica\(\), before )?(?:operation \d+ \(\w+\)|start-up): ")
_OF_A_GROUP = "of the group's ranks: "


@dataclass(frozen=True)
class Alike:
    """Verdicts of one adapter that seem to have one cause, in the order of the run; the first is the simplest."""

    verdicts: tuple[Verdict, ...]

    @property
    def first(self) -> Verdict:
        return min(self.verdicts, key=_depth)

    @property
    def text(self) -> str:
        """The cause in words, or what was got."""
        return said(self.first)

    @property
    def checks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(verdict.check for verdict in self.verdicts))

    @property
    def world_sizes(self) -> tuple[int, ...]:
        return tuple(sorted({verdict.world_size for verdict in self.verdicts}))


def said(verdict: Verdict) -> str:
    """A failure in one line: its cause in words, or what was got."""
    if verdict.diagnosis is None:
        return f"the check itself crashed: {verdict.reason.strip().rpartition(chr(10))[2]}"
    return verdict.diagnosis.cause or verdict.diagnosis.headline


def known_by(verdict: Verdict) -> str:
    """The words that failures of one cause share: of the cause, or of a rank's error. Empty if there are none."""
    diagnosis = verdict.diagnosis
    if diagnosis is None:
        return ""
    words = diagnosis.cause.removeprefix(_OF_A_GROUP).partition("; ")[0] or _error(diagnosis.headline)
    if verdict.status == "hung":
        words = words.partition(": ")[0]
    return _NUMBERS.sub("#", words)


def alike(verdicts: Iterable[Verdict]) -> list[Alike]:
    """The failures among them, grouped, the one to look at first in front."""
    groups: dict[tuple[str, str, str], list[Verdict]] = {}
    for verdict in verdicts:
        if not verdict.ok:
            words = known_by(verdict)
            groups.setdefault((verdict.adapter, words, "" if words else verdict.check), []).append(verdict)
    found = [Alike(tuple(group)) for group in groups.values()]
    most = max((len(group.checks) for group in found), default=0)
    return sorted(
        found, key=lambda group: (_MANY * len(group.checks) < most, _is_a_guess(group.first), _depth(group.first))
    )


def _is_a_guess(verdict: Verdict) -> bool:
    """Whether its cause is what remains where no evidence was found."""
    words = known_by(verdict)
    return not words or " may " in words or words.startswith("if ")


def _error(headline: str) -> str:
    parts = _OPERATION.split(headline, maxsplit=1)
    return parts[1] if len(parts) > 1 else ""


def _depth(verdict: Verdict) -> int:
    return _FOUNDATIONS.index(verdict.family) if verdict.family in _FOUNDATIONS else len(_FOUNDATIONS)
