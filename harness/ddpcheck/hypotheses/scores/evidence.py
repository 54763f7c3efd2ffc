"""A wrong score on one rank."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ...job import Score
from .samples import SamplesByRank


@dataclass(frozen=True)
class WrongScore:
    """want: the right score. bound: its rounding bound. before: the previous calls."""

    made: Score
    before: tuple[Score, ...]
    rank: int
    got: float
    want: float
    bound: float

    @cached_property
    def held(self) -> SamplesByRank:
        return SamplesByRank(self.made, self.before, self.rank)

    def fits(self, score: float) -> bool:
        """Whether the rank has this score, up to rounding."""
        return abs(self.got - score) <= max(self.bound, 1e-9 * abs(self.want))
