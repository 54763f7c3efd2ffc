"""Exchange of numbers between connected ranks before the first operation."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ddpcheck.seeded_values import Array

from ..connections import wire_format
from ..connections.peer import Peer


def exchange(peers: Mapping[int, Peer], numbers: Array, round_: int) -> dict[int, Array]:
    """Send numbers to every peer, and return each peer's numbers."""
    header = wire_format.pack("meet", numbers, sequence=round_)
    for peer in peers.values():
        peer.send(header, numbers)
    received = {other: np.empty_like(numbers) for other in peers}
    for other, peer in peers.items():
        peer.receive(header, received[other])
    return received
