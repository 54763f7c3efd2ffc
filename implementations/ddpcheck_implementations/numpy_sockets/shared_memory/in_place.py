"""All-reduce in the arrays of all ranks themselves, if all lie in shared regions (mapping.py).

Ranks publish the places of their arrays. Each adds up its part of all arrays, and writes the sums into all. Costs for N bytes
per rank and W ranks, with `a`, `c` and `r` as in collectives.py:

    all_reduce_in_place     2 a + (W - 1)/W N (c + r)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from ddpcheck.seeded_values import Array

from .mapping import MAX_CACHED, MappedRegions, RegionPool
from .pieces import pieces, reduce_into

_CACHED_BYTES = 256 * 1024
"""Bytes of each array that are processed at once: two such pieces fit a core's cache, and few calls are needed."""
_Dtype = np.dtype[np.generic]


@dataclass(frozen=True, slots=True)
class InPlacePart:
    """The part that one rank reduces: `nbytes` of each array, as pieces that each have a view for every rank."""

    nbytes: int
    pieces: list[Sequence[Array]]

    def reduce(self, reduction: np.ufunc, divisor: int) -> None:
        """Add up in rank order, and write the sums into all arrays.

        Each call reverses the order of the pieces, since the last ones of the call before are still in the cache.
        """
        self.pieces.reverse()
        for arrays in self.pieces:
            first = arrays[0]
            reduce_into(arrays, first, reduction, divisor)
            for other in arrays[1:]:
                other[:] = first


class InPlaceParts:
    """The parts of the rank in place `position`. `memory` has the arrays of each rank, in rank order; its own are in `pool`.

    A training step reduces the same arrays every time, so the latest parts are cached.
    """

    def __init__(self, position: int, memory: Sequence[RegionPool | MappedRegions], pool: RegionPool) -> None:
        self._pool = pool
        self._find_part = lru_cache(MAX_CACHED)(partial(_part, position, memory))

    def place(self, array: Array) -> Array:
        """Return the place of an array, for other ranks to map it."""
        return np.array(self._pool.place(array), np.int64)

    def find(self, array: Array, places: Sequence[Array]) -> InPlacePart | None:
        """Return this rank's part of the arrays at `places`, one of each rank like `array`; None if one is in no region."""
        return self._find_part(array.dtype, array.size, *[place.tobytes() for place in places])


def _part(
    position: int, memory: Sequence[RegionPool | MappedRegions], dtype: _Dtype, count: int, *published: bytes
) -> InPlacePart | None:
    places = [np.frombuffer(place, np.int64).tolist() for place in published]
    if not all(serial for serial, *_ in places):
        return None
    arrays = [
        np.frombuffer(each.view(serial, descriptor, size), dtype, count, offset)
        for each, (serial, descriptor, size, offset) in zip(memory, places, strict=True)
    ]
    start, stop = (count * part // len(memory) for part in (position, position + 1))
    cut = pieces(start, stop, _CACHED_BYTES // dtype.itemsize)
    return InPlacePart((stop - start) * dtype.itemsize, [[each[piece] for each in arrays] for piece in cut])
