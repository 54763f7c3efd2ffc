"""Counts the causes of one adapter, and shortens checks of families in which more Jobs would only repeat a cause."""

from __future__ import annotations

from ..checks import Check
from ..verdict import Verdict
from .failure_causes import Identity, identity_of

_ENOUGH = 3
"""After this many failures with one cause in a family, the family's other checks take one Job each."""


class RepeatedCauses:
    """Receives each verdict, at any world size."""

    def __init__(self) -> None:
        self._failed: dict[tuple[str, Identity], set[str]] = {}

    def add(self, verdict: Verdict) -> None:
        identity = identity_of(verdict)
        if not verdict.ok and identity:
            self._failed.setdefault((verdict.family, identity), set()).add(verdict.check)

    @property
    def causes(self) -> frozenset[str]:
        """The ids of all likeliest causes."""
        return frozenset(identity[0] for _, identity in tuple(self._failed))

    def shortens(self, check: Check) -> str:
        """The reason why this check runs only one Job; empty if it runs all."""
        for (family, _), names in tuple(self._failed.items()):
            if family == check.family and len(names - {check.name}) >= _ENOUGH:
                return (
                    f"one Job only, since {len(names)} checks of {family} fail by one cause; --level full runs all Jobs"
                )
        return ""
