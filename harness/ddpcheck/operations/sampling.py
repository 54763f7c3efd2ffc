"""Samplers that are read, and metrics that are aggregated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..plain import plain


@plain
@dataclass(frozen=True, slots=True)
class Sample:
    """Make one sampler and read it once for each epoch. Yields epochs: one int64 array each, length: len(sampler), and
    length_before: what it was before anything was read.

    An epoch of None reads again without set_epoch. disturbed: between two readings this rank draws from the generators
    that its process shares, and the next seeds its own. peeks: so many samples rank r reads of each epoch first, before
    it begins anew, with set_epoch. beside: another sampler is told another epoch and read before each reading of this.
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


@plain
@dataclass(frozen=True, slots=True)
class Aggregate:
    """Aggregate local mean metrics over ranks: rank r holds values[r] as the mean over counts[r] samples. Yields
    metrics.
    """

    kind: ClassVar[str] = "aggregate"
    values: tuple[float, ...]
    counts: tuple[int, ...]
