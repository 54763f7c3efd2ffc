"""Recursive doubling: in round k, ranks whose places differ in bit k exchange their whole sums and add them up.

Costs for N bytes and W ranks, with latency `a`, and `b` and `r` seconds to send and to add one byte:

    all_reduce  log2 W (a + N b + N r)

If W is no power of two, the first ranks form pairs, so that a power of two is left: the even rank of a pair sends its array to
the odd one, and receives the result from it at the end, which takes 2 a + 2 N b + N r more.

After round k, all ranks whose places differ in the bits 0 to k only have the same sum: of four ranks, (0 + 1) + (2 + 3). Each
puts the lower ranks first, so that all get the same bits from every reduction (np.minimum(0.0, -0.0) depends on the order).

Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH, 2005.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ddpcheck.seeded_values import Array

from ..connections.duplex import send_receive
from ..connections.peer import Peer
from .all_to_all import Peers


@dataclass(frozen=True, slots=True)
class Hypercube:
    """The `size` = 2^k ranks that exchange, and this rank's `place` among them. `ranks` has their connections, None for itself.

    The even rank of a pair has no place (-1): the odd rank represents it.
    """

    size: int
    place: int
    ranks: tuple[Peer | None, ...]
    represented_by: Peer | None
    represents: Peer | None

    @classmethod
    def of(cls, peers: Peers, position: int) -> Hypercube:
        """Return the hypercube of all members, seen from the one at `position`."""
        size = 1 << len(peers).bit_length() - 1
        extra = len(peers) - size
        positions = [2 * place + 1 for place in range(extra)] + [place + extra for place in range(extra, size)]
        paired = position < 2 * extra
        even = paired and position % 2 == 0
        return cls(
            size,
            -1 if even else positions.index(position),
            tuple(peers[position] for position in positions),
            peers[position + 1] if even else None,
            peers[position - 1] if paired and not even else None,
        )

    def partner(self, distance: int) -> Peer:
        """Return the rank whose place differs in the bit `distance`."""
        peer = self.ranks[self.place ^ distance]
        assert peer is not None
        return peer


def all_reduce(hypercube: Hypercube, header: bytes, source: Array, target: Array, reduction: np.ufunc) -> None:
    """Reduce `source` into `target`, which may be the same array."""
    run_on_hypercube(_rounds, hypercube, header, source, target, reduction)


def _rounds(
    hypercube: Hypercube, header: bytes, have: Array, theirs: Array, target: Array, reduction: np.ufunc
) -> None:
    distance = 1
    while distance < hypercube.size:
        partner = hypercube.partner(distance)
        send_receive(partner, partner, header, have, theirs)
        lower, higher = (theirs, have) if hypercube.place & distance else (have, theirs)
        reduction(lower, higher, out=target)
        have = target
        distance *= 2


Rounds = Callable[[Hypercube, bytes, Array, Array, Array, np.ufunc], None]
"""The rounds of an all-reduce: of hypercube, header, this rank's input, receive buffer, target and reduction."""


def run_on_hypercube(
    rounds: Rounds, hypercube: Hypercube, header: bytes, source: Array, target: Array, reduction: np.ufunc
) -> None:
    """Run the rounds; before and after them the even rank of a pair sends its array, and receives the result."""
    if hypercube.represented_by is not None:
        hypercube.represented_by.send(header, source)
        hypercube.represented_by.receive(header, target)
        return
    have, theirs = source, np.empty_like(source)
    if hypercube.represents is not None:
        hypercube.represents.receive(header, theirs)
        reduction(theirs, source, out=target)
        have = target
    rounds(hypercube, header, have, theirs, target, reduction)
    if hypercube.represents is not None:
        hypercube.represents.send(header, target)
