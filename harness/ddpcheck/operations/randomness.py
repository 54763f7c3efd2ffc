"""Random numbers: an implementation's own streams, and mishaps of the generators that a whole process shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..storage.dataclass_json import plain


@plain
@dataclass(frozen=True, slots=True)
class Draw:
    """Make one Streams and draw from it in each epoch: `extra[rank]` local numbers first, then `count` of both kinds, in two
    calls each.

    Yields local and common: one float64 array of shape (count,) for each epoch; and overwritten_later, which of them gave
    numbers that have changed by the end of the Job. An epoch of None draws without set_epoch.
    beside: two others, of another seed and of this one, are told another epoch and drawn from between the two calls.
    common_first: so many common numbers every rank draws in each epoch before all else. one_by_one: in a call for each number.
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
    """One rank draws from the generators that its process shares (random, numpy.random, torch), the next seeds its own."""

    kind: ClassVar[str] = "disturb"
    rank: int
