"""Broadcast along a binomial tree, and barrier by dissemination: log2 W rounds for W ranks.

Costs for N bytes, with latency `a` and `b` seconds to send one byte:

    broadcast  log2 W (a + N b)
    barrier    log2 W a
"""

from __future__ import annotations

from ddpcheck.seeded_values import Array

from ..connections.peer import Peer
from .all_to_all import Peers


def broadcast(peers: Peers, position: int, header: bytes, array: Array, root: int) -> None:
    """Broadcast in place. A rank's parent is its distance from the root without the lowest bit that is set."""
    size = len(peers)
    place = (position - root) % size
    lowest = place & -place or 1 << (size - 1).bit_length()
    if place:
        _at_distance(peers, position, -lowest).receive(header, array)
    while lowest > 1:
        lowest >>= 1
        if place + lowest < size:
            _at_distance(peers, position, lowest).send(header, array)


def barrier(peers: Peers, position: int, header: bytes) -> None:
    """Return when all ranks have called. In round k each sends to the rank 2^k places on, so log2 W rounds reach all."""
    distance = 1
    while distance < len(peers):
        _at_distance(peers, position, distance).send(header)
        _at_distance(peers, position, -distance).receive(header)
        distance *= 2


def _at_distance(peers: Peers, position: int, distance: int) -> Peer:
    """Return the member `distance` places on."""
    peer = peers[(position + distance) % len(peers)]
    assert peer is not None
    return peer
