"""Direct exchange: every rank sends its whole array to every other, and adds all arrays up in rank order.

Costs for N bytes and W ranks, with latency `a`, and `b` and `r` seconds to send and to add one byte:

    all_reduce  a + (W - 1) N b + (W - 1) N r
    all_gather  a + (W - 1) N b

No algorithm takes less than one message, so this one is the fastest for few ranks and small arrays. Large arrays are
exchanged with one rank after the other, so that no kernel buffer overflows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddpcheck.seeded_values import Array

from ..connections.duplex import FITS_BYTES, send_receive
from ..connections.peer import Peer

Peers = Sequence[Peer | None]
"""Connections to the members of a group, in rank order; None at this rank's position."""


def all_reduce(peers: Peers, position: int, header: bytes, source: Array, target: Array, reduction: np.ufunc) -> None:
    """Reduce `source` into `target`, which may be the same array."""
    first, second, *others = exchange(peers, position, header, source)
    result = reduction(first, second)
    for other in others:
        reduction(result, other, out=result)
    target[:] = result


def exchange(peers: Peers, position: int, header: bytes, flat: Array) -> list[Array]:
    """Return the flat arrays of all members, in rank order."""
    arrays = [flat if peer is None else np.empty_like(flat) for peer in peers]
    others = [(peer, array) for peer, array in zip(peers, arrays, strict=True) if peer is not None]
    if flat.nbytes * len(others) <= FITS_BYTES:
        for peer, _ in others:
            peer.send(header, flat)
        for peer, array in others:
            peer.receive(header, array)
        return arrays
    size = len(peers)
    for distance in range(1, size):
        after, before = (position + distance) % size, (position - distance) % size
        to, source = peers[after], peers[before]
        assert to is not None
        assert source is not None
        send_receive(to, source, header, flat, arrays[before])
    return arrays
