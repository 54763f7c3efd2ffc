"""Counts causes of one adapter, and finds families of checks in which more Jobs would only repeat them."""

from __future__ import annotations

from ..checks import Check
from ..verdict import Verdict
from .failure_groups import Identity, identity_of

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

    def shortens(self, check: Check) -> str:
        """The reason why this check takes one Job only; empty if it takes all."""
        for (family, _), names in tuple(self._failed.items()):
            if family == check.family and len(names - {check.name}) >= _ENOUGH:
                return f"one Job only, as {len(names)} checks of {family} fail of one cause; --level full takes all"
        return ""
