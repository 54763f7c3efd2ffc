"""Failures of one run that seem to have one cause, and which cause to look at first.

One mistake fails many checks, at every world size, with other numbers each time. Groups are made by the id of the likeliest
cause; the first is the one on which the others may rest: collectives before gradients, gradients before training.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..causes import ranks
from ..verdict import Verdict

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


@dataclass(frozen=True)
class Alike:
    """Verdicts of one adapter that seem to have one cause, in the order of the run; the first is the simplest."""

    verdicts: tuple[Verdict, ...]

    @property
    def first(self) -> Verdict:
        return min(self.verdicts, key=_depth)

    @property
    def text(self) -> str:
        """The cause's headline, or that of the failure."""
        return said(self.first)

    @property
    def checks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(verdict.check for verdict in self.verdicts))

    @property
    def world_sizes(self) -> tuple[int, ...]:
        return tuple(sorted({verdict.world_size for verdict in self.verdicts}))


def said(verdict: Verdict) -> str:
    """A failure in one line: its likeliest cause, or its headline."""
    if verdict.diagnosis is None:
        return f"the check itself crashed: {verdict.reason.strip().rpartition(chr(10))[2]}"
    return verdict.diagnosis.cause.headline if verdict.diagnosis.cause else verdict.diagnosis.headline


Identity = tuple[str, ...]
"""What failures of one cause share: the id of the likeliest, and of an exception its type and its place."""


def known_by(verdict: Verdict) -> Identity:
    """What failures of the same cause share; empty if no cause is known."""
    cause = verdict.diagnosis.cause if verdict.diagnosis is not None else None
    if cause is None:
        return ()
    return (cause.id, *(str(value) for _, value in cause.parameters)) if cause.id in _BY_PARAMETERS else (cause.id,)


_BY_PARAMETERS = {ranks.RANK_RAISED.id, ranks.RESULT_VIOLATES_CONTRACT.id, ranks.UNCAUGHT_COMPILED_ERROR.id}
"""Two of these are one mistake only if their parameters agree, too."""


def alike(verdicts: Iterable[Verdict]) -> list[Alike]:
    """The failures among them, grouped, the one to look at first in front."""
    groups: dict[tuple[str, Identity, str], list[Verdict]] = {}
    for verdict in verdicts:
        if not verdict.ok:
            identity = known_by(verdict)
            groups.setdefault((verdict.adapter, identity, "" if identity else verdict.check), []).append(verdict)
    found = [Alike(tuple(group)) for group in groups.values()]
    most = max((len(group.checks) for group in found), default=0)
    return sorted(
        found, key=lambda group: (_MANY * len(group.checks) < most, _is_a_guess(group.first), _depth(group.first))
    )


def _is_a_guess(verdict: Verdict) -> bool:
    """Whether its cause is one of several that the values allow, or is not known."""
    cause = verdict.diagnosis.cause if verdict.diagnosis is not None else None
    return cause is None or cause.certainty == "possible"


def _depth(verdict: Verdict) -> int:
    return _FOUNDATIONS.index(verdict.family) if verdict.family in _FOUNDATIONS else len(_FOUNDATIONS)
