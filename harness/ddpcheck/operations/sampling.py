"""Operations that read samplers and aggregate metrics."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ..storage.dataclass_json import plain


@plain
@dataclass(frozen=True, slots=True)
class Sample:
    """Make one sampler and read it once for each epoch.

    Yields epochs: one int64 array each; length: len(sampler) at the end; length_before: len(sampler) before the first
    reading.

    An epoch of None reads again without set_epoch. disturbed: between two readings this rank draws from its process's
    generators, and the next rank seeds its own. peeks: rank r first reads this many samples of each epoch, then starts
    the epoch again with set_epoch. beside: before each reading, three other samplers are read: with another seed and
    another epoch, with this seed and another epoch, and with five more samples in the same epoch. retold: before each
    set_epoch the sampler is set to another epoch.
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
        """For each sampler that is read beside this one: its length, its seed, and how many epochs later it is set."""
        found = (self.length, self.seed + 1, 7), (self.length, self.seed, 7), (self.length + 5, self.seed, 0)
        return found if self.beside else ()


@plain
@dataclass(frozen=True, slots=True)
class Aggregate:
    """Aggregate local mean metrics over ranks: rank r holds values[r] as the mean over counts[r] samples.

    Yields metrics; argument_changed: whether the caller's mapping has changed; earlier_changed: whether a result that
    was returned earlier in this Job has changed.

    names: several metrics in this order; the value of the metric at position i is multiplied by i + 1. no_number: a
    rank and the name of its metric that is NaN. turned: the mapping of rank r begins with the r-th name.
    """

    kind: ClassVar[str] = "aggregate"
    values: tuple[float, ...]
    counts: tuple[int, ...]
    names: tuple[str, ...] = ("metric",)
    no_number: tuple[int, str] | None = None
    turned: bool = False

    def given(self, rank: int) -> dict[str, float]:
        """The means that this rank holds, by name, in this rank's order."""
        held = [
            (name, math.nan if (rank, name) == self.no_number else (place + 1) * self.values[rank])
            for place, name in enumerate(self.names)
        ]
        begin = rank % len(held) if held and self.turned else 0
        return dict(held[begin:] + held[:begin])
