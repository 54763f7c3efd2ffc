"""What ranks that have met tell each other before the first operation."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ddpcheck.seeded_values import Array

from ..connections import wire_format
from ..connections.peer import Peer


def exchanged(peers: Mapping[int, Peer], card: Array, round_: int) -> dict[int, Array]:
    """The card of every peer, in exchange for this rank's: as many numbers."""
    header = wire_format.pack("meet", card, sequence=round_)
    for peer in peers.values():
        peer.send(header, card)
    told = {other: np.empty_like(card) for other in peers}
    for other, peer in peers.items():
        peer.receive(header, told[other])
    return told
