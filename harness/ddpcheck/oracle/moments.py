"""What the oracle says: one Moment for each operation, with an Entry for each named array."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ..diagnosis import Evidence
from ..job import Operation
from ..values import Array
from .rounding import Value
from .updates import Loading, Update

Presence = Literal["there", "none", "either"]


@dataclass(frozen=True, slots=True)
class Contributions:
    """What a gradient was made of, for a diagnosis; arrays have the ranks as first axis.

    own: each rank's own, all since zero_grad. first, last: each rank's own of the first and the last
    backward. before: what was shown after the
    backward before. backwards: how many since zero_grad. counts: the ranks' batch sizes. inside: whether the last one
    was inside no_sync. weighted: whether batch sizes are promised to count.
    """

    own: Array
    first: Array
    last: Array
    before: Array | None
    backwards: int
    counts: Array
    inside: bool
    weighted: bool

    def evidence(self, expected: Array, rank: int) -> Evidence:
        return Evidence(len(self.own), self.own[rank], tuple(self._alternatives(expected, rank)))

    def _alternatives(self, expected: Array, rank: int) -> Iterator[tuple[str, Array]]:
        """What the gradient would be if something specific had gone wrong."""
        if self.before is not None:
            before = self.before[rank]
            if self.backwards:
                yield "it is the gradient of the backward before: stale, reduced too early or one step late", before
            yield "it also holds the gradient of before: not reset by zero_grad, or counted twice", expected + before
        if self.backwards > 1:
            last = self.last[rank] if self.inside else self.last.mean(axis=0)
            yield "it is the last micro-batch only: what was accumulated before is lost", last
            first = self.first[rank] if self.inside else self.first.mean(axis=0)
            yield "the first micro-batch is missing: what was accumulated before is lost", expected - first
            yield "it was divided by the number of micro-batches", expected / self.backwards
        if self.inside:
            yield "it is the mean over all ranks: synchronised, though inside no_sync", self.own.mean(axis=0)
        elif self.weighted:
            yield "it is the mean with equal weights, but should be weighted by batch sizes", self.own.mean(axis=0)
        else:
            share = self.counts / max(self.counts.sum(), 1)
            yield "it is weighted by batch sizes, but ranks should have equal weights", np.tensordot(share, self.own, 1)
        for other in range(len(self.own)):
            if other != rank:
                yield f"it is rank {other}'s own local gradient: one rank's value, not all ranks'", self.own[other]


@dataclass(frozen=True, slots=True)
class Entry:
    """What one named array must be on every rank: value.exact[r] on rank r.

    presence: whether rank r must hold an array, must hold None, or may hold None or zeros. ranks: those on which the
    value is promised. alike: all ranks must hold the same bits, even where a bound lets them differ from the exact
    value.
    """

    value: Value
    dtype: str
    presence: tuple[Presence, ...]
    ranks: tuple[int, ...]
    alike: bool = True
    made_of: Contributions | Update | Loading | None = None

    def evidence(self, rank: int) -> Evidence:
        """What else it might be, for a diagnosis."""
        if self.made_of is None:
            return Evidence(len(self.presence))
        return self.made_of.evidence(self.value.exact[rank], rank)


@dataclass(frozen=True, slots=True)
class Moment:
    """What one operation must have yielded.

    numbers: by name (loss, norm), a value for every rank; known: what such a number would be on every rank if something
    specific had gone wrong. arrays: by what (gradients, parameters, buffers), then by
    name. outputs: of a prediction, an array for every rank; `promised` are the ranks on which it is.
    """

    position: int
    operation: Operation
    numbers: Mapping[str, Value] = field(default_factory=dict)
    known: tuple[tuple[str, Array], ...] = ()
    arrays: Mapping[str, Mapping[str, Entry]] = field(default_factory=dict)
    outputs: tuple[Value, ...] = ()
    promised: tuple[int, ...] = ()
