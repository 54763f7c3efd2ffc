"""Recursive halving, then doubling: 2 log2 W rounds, and no more bytes than a ring.

Costs for N bytes and W = 2^k ranks, with latency `a`, and `b` and `r` seconds to send and to add one byte:

    all_reduce  2 log2 W a + 2 (W - 1)/W N b + (W - 1)/W N r

Partners exchange halves of the part that they both hold: the lower rank keeps the lower half. After log2 W rounds each rank
has a finished piece. Then the rounds run backwards, and partners exchange finished pieces. Other numbers of ranks are first
made a power of two, as in recursive_doubling.py. Partners of the first round are the nearest ranks, so each element is added
up in the order of recursive_doubling.py.

"Rabenseifner's algorithm" in Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH, 2005.
"""

from __future__ import annotations

import numpy as np

from ddpcheck.seeded_values import Array

from ..connections.duplex import send_receive
from .recursive_doubling import Hypercube, run_on_hypercube


def all_reduce(hypercube: Hypercube, header: bytes, source: Array, target: Array, reduction: np.ufunc) -> None:
    """Reduce `source` into `target`, which may be the same array."""
    run_on_hypercube(_rounds, hypercube, header, source, target, reduction)


def _rounds(
    hypercube: Hypercube, header: bytes, have: Array, theirs: Array, target: Array, reduction: np.ufunc
) -> None:
    _gather(hypercube, header, target, _halve(hypercube, header, have, theirs, target, reduction))


def _halve(
    hypercube: Hypercube, header: bytes, have: Array, theirs: Array, target: Array, reduction: np.ufunc
) -> list[tuple[int, int]]:
    """Reduce-scatter into `target`. Returns the part that this rank held before each round, and its finished piece."""
    held = [(0, target.size)]
    distance = 1
    while distance < hypercube.size:
        start, stop = held[-1]
        middle = (start + stop) // 2
        upper = bool(hypercube.place & distance)
        kept, sent = (start, middle), (middle, stop)
        if upper:
            kept, sent = sent, kept
        partner = hypercube.partner(distance)
        keep = slice(*kept)
        send_receive(partner, partner, header, have[slice(*sent)], theirs[keep])
        lower, higher = (theirs, have) if upper else (have, theirs)
        reduction(lower[keep], higher[keep], out=target[keep])
        have = target
        held.append(kept)
        distance *= 2
    return held


def _gather(hypercube: Hypercube, header: bytes, target: Array, held: list[tuple[int, int]]) -> None:
    """All-gather of the finished pieces: the rounds of _halve backwards."""
    distance = hypercube.size
    while distance > 1:
        distance //= 2
        start, stop = held.pop()
        whole_start, whole_stop = held[-1]
        other = slice(whole_start, start) if start > whole_start else slice(stop, whole_stop)
        partner = hypercube.partner(distance)
        send_receive(partner, partner, header, target[start:stop], target[other])
