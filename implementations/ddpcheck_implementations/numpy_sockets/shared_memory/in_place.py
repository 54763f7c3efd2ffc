"""Sums in the arrays of all ranks themselves, where those lie in regions (memory.py): nothing is copied out.

Ranks tell one another where their arrays lie. Each adds up its part of all of them, and writes the sums into all, so that for
N bytes per rank and W ranks, with `a`, `c` and `r` as collectives.py has them,

    all_reduce_in_place     2 a + (W - 1)/W N (c + r)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from ddpcheck.seeded_values import Array

from .mapping import KEPT, Mapped, Pool
from .pieces import pieces, reduce_into

_CACHED_BYTES = 256 * 1024
"""Bytes of each array processed at once: two such pieces fit a core's own cache, and the cost of calls is small."""
_Dtype = np.dtype[np.generic]


@dataclass(frozen=True, slots=True)
class Part:
    """The part that one rank reduces: `nbytes` of each array, in pieces of the arrays of all ranks."""

    nbytes: int
    pieces: list[Sequence[Array]]

    def reduce(self, reduction: np.ufunc, divisor: int) -> None:
        """In rank order, for all of them. Back and forth by turns: what came last the time before is still in the cache."""
        self.pieces.reverse()
        for arrays in self.pieces:
            first = arrays[0]
            reduce_into(arrays, first, reduction, divisor)
            for other in arrays[1:]:
                other[:] = first


class Parts:
    """Those of the rank in place `position`. `memory` is where the arrays of each rank lie, in rank order: its own are in `pool`.

    A training step reduces the same arrays again and again, so the latest parts are kept.
    """

    def __init__(self, position: int, memory: Sequence[Pool | Mapped], pool: Pool) -> None:
        self._pool = pool
        self._made = lru_cache(KEPT)(partial(_part, position, memory))

    def place(self, array: Array) -> Array:
        """What others must know to reach it."""
        return np.array(self._pool.place(array), np.int64)

    def of(self, array: Array, places: Sequence[Array]) -> Part | None:
        """For this array and those like it at the `places` of all ranks; None if one cannot be reached."""
        return self._made(array.dtype, array.size, *[place.tobytes() for place in places])


def _part(position: int, memory: Sequence[Pool | Mapped], dtype: _Dtype, count: int, *told: bytes) -> Part | None:
    places = [np.frombuffer(place, np.int64).tolist() for place in told]
    if not all(serial for serial, *_ in places):
        return None
    arrays = [
        np.frombuffer(each.view(serial, descriptor, size), dtype, count, offset)
        for each, (serial, descriptor, size, offset) in zip(memory, places, strict=True)
    ]
    start, stop = (count * part // len(memory) for part in (position, position + 1))
    cut = pieces(start, stop, _CACHED_BYTES // dtype.itemsize)
    return Part((stop - start) * dtype.itemsize, [[each[piece] for each in arrays] for piece in cut])
