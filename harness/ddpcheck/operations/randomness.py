"""Random numbers: an implementation's own streams, and mishaps of the generators that a whole process shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..plain import plain


@plain
@dataclass(frozen=True, slots=True)
class Draw:
    """Make one Streams and draw from it in each epoch: `extra[rank]` local numbers first, then `count` of both kinds.

    Yields local and common: one float64 array of shape (count,) for each epoch.
    """

    kind: ClassVar[str] = "draw"
    seed: int = 0
    epochs: tuple[int, ...] = (0,)
    count: int = 8
    extra: tuple[int, ...] = ()  # () means none on any rank


@plain
@dataclass(frozen=True, slots=True)
class Disturb:
    """One rank draws from the generators that its process shares (random, numpy.random, torch), the next seeds its own."""

    kind: ClassVar[str] = "disturb"
    rank: int
