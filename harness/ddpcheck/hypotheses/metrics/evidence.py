"""A wrong mean of metrics on one rank."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from ...job import Aggregate
from ...oracle.means import mean_of


@dataclass(frozen=True)
class WrongMean:
    """got: the rank's mean, or None. before: the previous calls."""

    made: Aggregate
    got: float | None
    rank: int
    before: tuple[Aggregate, ...] = ()

    @property
    def number(self) -> float:
        assert self.got is not None
        return self.got

    @property
    def world(self) -> int:
        return len(self.made.values)

    @cached_property
    def pairs(self) -> list[tuple[float, int]]:
        """Each rank's value and count."""
        return list(zip(self.made.values, self.made.counts, strict=True))

    @cached_property
    def present(self) -> list[float]:
        """The values of ranks that have samples."""
        return [value for value, count in self.pairs if count]

    @cached_property
    def total(self) -> float:
        """The sum over all samples."""
        return math.fsum(value * count for value, count in self.pairs if count)

    @cached_property
    def exact(self) -> float:
        """The right mean."""
        return mean_of([self.made])
