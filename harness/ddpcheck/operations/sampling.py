"""Operations that read samplers and aggregate metrics."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ..storage.dataclass_json import plain


@plain
@dataclass(frozen=True, slots=True)
class Sample:
    """Make one sampler and read it once for each epoch. Yields epochs: one int64 array each, length: len(sampler), and
    length_before: its length before anything was read.

    An epoch of None reads again without set_epoch. disturbed: between two readings this rank draws from the generators
    that its process shares, and the next seeds its own. peeks: so many samples rank r reads of each epoch first, before
    it begins anew, with set_epoch. beside: two others, of another seed and of this one, are told another epoch, and one
    of five samples more this epoch, and read before each reading of this.
    retold: the sampler is told another epoch before each that it is to read.
    """

    kind: ClassVar[str] = "sample"
    length: int
    epochs: tuple[int | None, ...] = (0,)
    shuffle: bool = True
    seed: int = 0
    drop_last: bool = False
    disturbed: int | None = None
    peeks: tuple[int, ...] = ()
    beside: bool = False
    retold: bool = False

    def others(self) -> tuple[tuple[int, int, int], ...]:
        """Of each that is beside: its length, its seed, and how many epochs later it is told."""
        found = (self.length, self.seed + 1, 7), (self.length, self.seed, 7), (self.length + 5, self.seed, 0)
        return found if self.beside else ()


@plain
@dataclass(frozen=True, slots=True)
class Aggregate:
    """Aggregate local mean metrics over ranks: rank r holds values[r] as the mean over counts[r] samples. Yields
    metrics; argument_changed: whether the caller's mapping was; and earlier_changed: whether a result of this Job was that
    had been given before.

    names: of several metrics in this order; the one at place i is i + 1 times as large. no_number: the rank and the name of
    one that is NaN instead. turned: the mapping of rank r begins with the r-th name.
    """

    kind: ClassVar[str] = "aggregate"
    values: tuple[float, ...]
    counts: tuple[int, ...]
    names: tuple[str, ...] = ("metric",)
    no_number: tuple[int, str] | None = None
    turned: bool = False

    def given(self, rank: int) -> dict[str, float]:
        """The means that this rank holds, by name, in its own order."""
        held = [
            (name, math.nan if (rank, name) == self.no_number else (place + 1) * self.values[rank])
            for place, name in enumerate(self.names)
        ]
        begin = rank % len(held) if held and self.turned else 0
        return dict(held[begin:] + held[:begin])
