"""Some of the ranks, as one of them sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ddpcheck.values import Array

from . import wire
from .peer import Peer
from .ring import Ring


class Group:
    """Ascending ranks, this one among them, and how many operations they have begun together."""

    def __init__(self, ranks: Sequence[int], own: int, peers: Mapping[int, Peer]) -> None:
        self.ranks = tuple(ranks)
        self.size = len(self.ranks)
        self.position = self.ranks.index(own)
        self._code = wire.group_code(self.ranks)
        self._sequence = 0
        self._peers = [peers.get(rank) for rank in self.ranks]  # None in this rank's own place
        self._others = [peer for peer in self._peers if peer is not None]

    def header(self, operation: str, array: Array, detail: int | str = 0) -> bytes:
        """The header of this group's next operation."""
        packed = wire.pack(operation, array, detail, self._code, self._sequence)
        self._sequence += 1
        return packed

    def neighbour(self, distance: int) -> Peer:
        """The member so many places further on."""
        peer = self._peers[(self.position + distance) % self.size]
        assert peer is not None
        return peer

    def ring(self) -> Ring:
        return Ring(self.position, self.size, self.neighbour(-1), self.neighbour(1))

    def exchange(self, header: bytes, flat: Array) -> list[Array]:
        """The flat arrays of all members, in rank order, each straight from its owner. All send before they receive."""
        for other in self._others:
            other.send(header, flat)
        arrays = []
        for peer in self._peers:
            if peer is None:
                arrays.append(flat)
                continue
            arrays.append(np.empty_like(flat))
            peer.receive(header, arrays[-1])
        return arrays
