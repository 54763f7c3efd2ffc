"""Recursive halving, then doubling: few rounds, and no more bytes than a ring.

For N bytes, W = 2^k ranks, a latency `a`, and `b` and `r` to send and to add a byte:

    all_reduce  2 log2 W a + 2 (W - 1)/W N b + (W - 1)/W N r

Ranks swap halves of the unfinished part: the lower one of two ranks keeps the lower half. After log2 W rounds each has a
finished piece. Then the rounds go backwards, and ranks swap finished pieces. Other numbers of ranks are first made a
power of two, as in recursive_doubling.py.

Partners of the first round are the nearest ranks, so each element is added up in the order of recursive_doubling.py.
"""

from __future__ import annotations

import numpy as np

from ddpcheck.seeded_values import Array

from ..connections.duplex import swap
from .recursive_doubling import Cube, in_cube


def all_reduce(cube: Cube, header: bytes, source: Array, target: Array, reduction: np.ufunc) -> None:
    """They may be the same array."""
    in_cube(_rounds, cube, header, source, target, reduction)


def _rounds(cube: Cube, header: bytes, have: Array, theirs: Array, target: Array, reduction: np.ufunc) -> None:
    kept = [(0, target.size)]
    distance = 1
    while distance < cube.size:
        start, stop = kept[-1]
        middle = (start + stop) // 2
        upper = bool(cube.place & distance)
        mine, given = (start, middle), (middle, stop)
        if upper:
            mine, given = given, mine
        partner = cube.partner(distance)
        keep = slice(*mine)
        swap(partner, partner, header, have[slice(*given)], theirs[keep])
        lower, higher = (theirs, have) if upper else (have, theirs)
        reduction(lower[keep], higher[keep], out=target[keep])
        have = target
        kept.append(mine)
        distance *= 2
    while distance > 1:
        distance //= 2
        start, stop = kept.pop()
        whole_start, whole_stop = kept[-1]
        other = slice(whole_start, start) if start > whole_start else slice(stop, whole_stop)
        partner = cube.partner(distance)
        swap(partner, partner, header, target[start:stop], target[other])
