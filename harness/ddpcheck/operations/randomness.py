"""Random numbers: the implementation's own streams, and disturbances of the generators that a whole process shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..storage.dataclass_json import plain


@plain
@dataclass(frozen=True, slots=True)
class Draw:
    """Make one Streams and draw from it in each epoch: first `extra[rank]` local numbers, then `count` local and
    `count` common numbers in two calls each.

    Yields local and common: one float64 array of shape (count,) for each epoch; and overwritten_later: the kinds whose
    returned numbers have changed by the end of the Job. An epoch of None draws without set_epoch. beside: two other
    Streams, one with another seed and one with this seed, are set to another epoch and drawn from between the two
    calls. common_first: every rank first draws this many common numbers in each epoch. one_by_one: one call per number.
    """

    kind: ClassVar[str] = "draw"
    seed: int = 0
    epochs: tuple[int | None, ...] = (0,)
    count: int = 8
    extra: tuple[int, ...] = ()  # () means none on any rank
    beside: bool = False
    common_first: int = 0
    one_by_one: bool = False


@plain
@dataclass(frozen=True, slots=True)
class Disturb:
    """One rank draws from its process's generators (random, numpy.random, torch); the next rank seeds its own."""

    kind: ClassVar[str] = "disturb"
    rank: int
