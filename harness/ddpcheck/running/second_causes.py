"""Searches on for a second cause, in a check whose failure only repeats a cause that many checks have told.

A check ends at its first failure, so one mistake can hide another. Such a check runs again, and failures by known
causes count as passed (known_causes.py). A failure by a new cause then takes the place of the repeated one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ..ranks.attaching import StartFailed
from ..verdict import Verdict
from .failure_groups import headline_of, identity_of
from .implied_causes import implied_by
from .known_causes import KnownCauses

if TYPE_CHECKING:
    from ..session import Session

_MANY = 5
"""Checks that fail by a cause before others search on. A cause of fewer checks hides little, and a second look of it is more
likely than a second mistake.
"""
_WITH_A_CONDITION = frozenset({"failures", "rendezvous", "wire"})
"""Families whose checks blame a condition, such as short reads, if a Job passes without it and fails with it. A failure that
counts as passed would mislead them.
"""
_SHARE = 0.2
"""The part of the time of an adapter's checks that is spent on searching on. A share, since a busy machine slows both."""
_SHARE_OF_A_CHECK = 0.25
"""The part of what is left that one check may spend, so that early checks leave time for later ones."""


class SecondCauses:
    """Receives each verdict of one adapter, at any world size, and searches on where causes repeat."""

    def __init__(self) -> None:
        self._told: dict[str, set[str]] = {}
        self._seconds = self._spent = 0.0

    def searched_on(self, session: Session, verdict: Verdict, again: Callable[[], Verdict]) -> Verdict:
        """The verdict, told by a new cause if there is one. again: judges the check again."""
        self._seconds += verdict.seconds
        identity = identity_of(verdict)
        repeats = bool(identity) and len(self._told.get(identity[0], set()) - {verdict.check}) >= _MANY
        self._add(verdict)
        left = _SHARE * self._seconds - self._spent
        if verdict.status != "failed" or not repeats or verdict.family in _WITH_A_CONDITION:
            return verdict
        if verdict.seconds >= left:
            return verdict
        found = self._second(session, again, _SHARE_OF_A_CHECK * left)
        if found is None:
            return verdict
        self._add(found)
        return _told_instead(verdict, found)

    def _second(self, session: Session, again: Callable[[], Verdict], seconds: float) -> Verdict | None:
        """The verdict of the check without known causes; None if it tells no new cause."""
        began = time.monotonic()
        told = tuple(self._told)  # another world size may add to it
        session.known = known = KnownCauses(frozenset(told).union(*map(implied_by, told)), began + seconds)
        try:
            found = again()
        except StartFailed:  # the next check tells it
            return None
        finally:
            session.known = None
            self._spent += time.monotonic() - began
        new = found.status == "failed" and found.diagnosis is not None and not known.explain(found.diagnosis)
        return found if new else None

    def _add(self, verdict: Verdict) -> None:
        identity = identity_of(verdict)
        if not verdict.ok and identity:
            self._told.setdefault(identity[0], set()).add(verdict.check)


def _told_instead(verdict: Verdict, found: Verdict) -> Verdict:
    """The verdict by its new cause, with a line that names the repeated one."""
    assert found.diagnosis is not None
    line = f"other Jobs of this check fail by a cause that other checks tell: {headline_of(verdict)}"
    return replace(
        found,
        seconds=round(verdict.seconds + found.seconds, 4),
        jobs=verdict.jobs + found.jobs,
        diagnosis=replace(found.diagnosis, details=(*found.diagnosis.details, line)),
    )
