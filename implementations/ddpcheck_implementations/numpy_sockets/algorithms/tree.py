"""Broadcast from one rank, and small all-gathers: in log2 W rounds, for W ranks.

broadcast  log2 W (a + N b)     of N bytes; a: latency, b: to send a byte
barrier    log2 W a
"""

from __future__ import annotations

from ddpcheck.seeded_values import Array

from ..connections.peer import Peer
from .all_to_all import Peers


def broadcast(peers: Peers, position: int, header: bytes, array: Array, root: int) -> None:
    """Down a binomial tree: a rank's parent is its distance from the root without its lowest bit set."""
    size = len(peers)
    place = (position - root) % size
    lowest = place & -place or 1 << (size - 1).bit_length()
    if place:
        _further(peers, position, -lowest).receive(header, array)
    while lowest > 1:
        lowest >>= 1
        if place + lowest < size:
            _further(peers, position, lowest).send(header, array)


def barrier(peers: Peers, position: int, header: bytes) -> None:
    """Dissemination: in round k tell the one 2^k further on. After log2 W rounds everyone has heard of everyone."""
    distance = 1
    while distance < len(peers):
        _further(peers, position, distance).send(header)
        _further(peers, position, -distance).receive(header)
        distance *= 2


def _further(peers: Peers, position: int, distance: int) -> Peer:
    """The member so many places on."""
    peer = peers[(position + distance) % len(peers)]
    assert peer is not None
    return peer
