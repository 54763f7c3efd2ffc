"""Counts the hangs of one adapter, and skips checks because of them: each hang costs a deadline.

A hang in one collective usually means that all collectives hang, at every world size; other facets may work. So the
remaining checks of a facet are skipped after several hangs, and sooner in the next facet and at other world sizes.
"""

from __future__ import annotations

from ..checks import Check

_SOONER = 3
"""The factor by which deadlines shrink after the first hang."""
_LEAST_SECONDS = 3.0
"""The shortest deadline: a check may let a rank come a second late, and a machine may be slow."""
_ABOUT_TIME = frozenset({"failures"})
"""Families that judge how soon ranks notice a failure. They keep the whole deadline."""
_EVERYTHING = 3
"""If this many facets hang, other world sizes are not tried."""


class HangBudget:
    """Receives each check that hung. most: the limit in the first facet that hangs; None: no limit."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._hung: dict[tuple[str, int], list[str]] = {}
        self._stuck: list[int] = []

    def start_is_stuck(self, world_size: int) -> None:
        """Ranks did not return from connect()."""
        self._stuck.append(world_size)

    def leaves_out_start(self, world_size: int) -> str:
        """The reason why ranks should not start at this world size; empty if they should."""
        if self._most is None or not self._stuck:
            return ""
        return f"the ranks did not return from connect() at world size {self._stuck[0]}; --world-size {world_size} tries it here"

    def add(self, check: Check, world_size: int) -> None:
        self._hung.setdefault((facet_of(check), world_size), []).append(check.name)

    def leaves_out(self, check: Check, world_size: int) -> str:
        """The reason why a check should not run at this world size; empty if it should."""
        if self._most is None:
            return ""
        alone = "; --check with its name runs it alone"
        sizes = [size for (_, size), names in self._hung.items() if check.name in names and size != world_size]
        if sizes:
            return f"the check hung at world size {sizes[0]}, so it is not tried again{alone}"
        facet = facet_of(check)
        hung = len(self._hung.get((facet, world_size), ()))
        if hung and hung >= self._limit(facet, world_size):
            return f"{hung} of the checks of {facet} hung before it{alone}"
        sizes = [size for other, size in self._hung if other == facet and size != world_size]
        if sizes and not hung and len({other for other, _ in self._hung}) >= _EVERYTHING:
            return f"{facet} hung at world size {sizes[0]}, as many others did{alone}"
        return ""

    def seconds(self, check: Check, deadline: float) -> float:
        """The deadline for an operation in this check."""
        if self._most is None or not self._hung or check.family in _ABOUT_TIME:
            return deadline
        return min(deadline, max(_LEAST_SECONDS, round(deadline / _SOONER, 1)))

    def _limit(self, facet: str, world_size: int) -> int:
        """The number of hangs allowed: one if the facet hung at another world size, and fewer with each facet that
        hung.
        """
        assert self._most is not None
        places = list(self._hung)  # in the order of their first hangs
        if any(other == facet and size != world_size for other, size in places[: places.index((facet, world_size))]):
            return 1
        before = list(dict.fromkeys(other for other, _ in places)).index(facet)
        return max(1, self._most >> before)


def facet_of(check: Check) -> str:
    """The facet that a check uses: the first that it needs, or its family if it needs none."""
    return next((need.facet for need in check.needs if need.facet), check.family)
