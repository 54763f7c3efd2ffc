"""Recursive doubling: in round k ranks that differ in bit k of their places swap all that they have, and add it up.

For N bytes, W ranks, a latency `a`, and `b` and `r` to send and to add a byte:

    all_reduce  log2 W (a + N b + N r)

If W is no power of two, the first ranks go together in pairs until as many are left as the power of two below: the even rank
of a pair gives its array to the odd one, and has the result from it at the end, which takes 2 a + 2 N b + N r more.

After round k, ranks whose places differ in the bits 0 to k only have the same sum: of four ranks, (0 + 1) + (2 + 3). Each
puts the lower ranks first, so that all have the same bits for every reduction: which is less, 0.0 or -0.0?
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ddpcheck.seeded_values import Array

from ..connections.duplex import swap
from ..connections.peer import Peer
from .all_to_all import Peers


@dataclass(frozen=True, slots=True)
class Cube:
    """This rank's place among the `size` = 2^k ranks that are left when others have been paired off.

    `waits_for` is the odd rank of the pair if this is the even one, which has no place; `answers` the even one if this is
    the odd one.
    """

    size: int
    place: int
    ranks: tuple[Peer | None, ...]
    waits_for: Peer | None
    answers: Peer | None

    @classmethod
    def of(cls, peers: Peers, position: int) -> Cube:
        """The cube of all members."""
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
        """The rank that differs in this bit."""
        peer = self.ranks[self.place ^ distance]
        assert peer is not None
        return peer


def all_reduce(cube: Cube, header: bytes, source: Array, target: Array, reduction: np.ufunc) -> None:
    """They may be the same array."""
    in_cube(_rounds, cube, header, source, target, reduction)


def _rounds(cube: Cube, header: bytes, have: Array, theirs: Array, target: Array, reduction: np.ufunc) -> None:
    distance = 1
    while distance < cube.size:
        partner = cube.partner(distance)
        swap(partner, partner, header, have, theirs)
        lower, higher = (theirs, have) if cube.place & distance else (have, theirs)
        reduction(lower, higher, out=target)
        have = target
        distance *= 2


Rounds = Callable[[Cube, bytes, Array, Array, Array, np.ufunc], None]
"""One exchange of a cube of ranks: cube, header, this rank's input, receive buffer, target and reduction."""


def in_cube(rounds: Rounds, cube: Cube, header: bytes, source: Array, target: Array, reduction: np.ufunc) -> None:
    """The rounds, with the pairs before and after: the even rank gives its array to the odd one, and gets the result."""
    if cube.waits_for is not None:
        cube.waits_for.send(header, source)
        cube.waits_for.receive(header, target)
        return
    have, theirs = source, np.empty_like(source)
    if cube.answers is not None:
        cube.answers.receive(header, theirs)
        reduction(theirs, source, out=target)
        have = target
    rounds(cube, header, have, theirs, target, reduction)
    if cube.answers is not None:
        cube.answers.send(header, target)
