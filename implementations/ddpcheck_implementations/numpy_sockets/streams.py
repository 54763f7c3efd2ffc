"""Collectives over one connection to every other rank, whatever it goes through.

Small arrays go straight from every rank to every other, which takes one message time; large ones go round a ring (ring.py),
which moves the least bytes; what one rank has for all goes down a binomial tree. Either way every rank combines, or gets,
the same numbers in the same order, so that all have the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ddpcheck.values import Array

from . import ring
from .peer import Peer
from .ring import Ring

DIRECT_BYTES = 32 * 1024
"""What a rank may send in all before it receives: it fits the kernel's buffers, so that all may send first."""


class OverStreams:
    """The algorithms for ascending `ranks`, `own` among them. Arrays are flat; `divisor` is 1, or W for a mean."""

    def __init__(self, ranks: tuple[int, ...], own: int, peers: Mapping[int, Peer], direct_bytes: int) -> None:
        self._size, self._position = len(ranks), ranks.index(own)
        self._peers = [peers.get(rank) for rank in ranks]  # None in this rank's own place
        self._others = [peer for peer in self._peers if peer is not None]
        self._ring = Ring(self._position, self._size, self._neighbour(-1), self._neighbour(1))
        self._direct_bytes = direct_bytes

    def all_reduce(self, header: bytes, source: Array, target: Array, reduction: np.ufunc, divisor: int) -> None:
        """They may be the same array."""
        if self._is_small(source):
            first, second, *others = self._exchange(header, source)
            result = reduction(first, second)
            for other in others:
                reduction(result, other, out=result)
            target[:] = result
        else:
            ring.all_reduce(self._ring, header, source, target, reduction)
        if divisor > 1:
            np.divide(target, divisor, out=target)

    def all_reduce_in_place(self, header: bytes, array: Array, reduction: np.ufunc, divisor: int) -> None:
        self.all_reduce(header, array, array, reduction, divisor)

    def reduce_scatter(self, header: bytes, source: Array, target: Array, reduction: np.ufunc, divisor: int) -> None:
        """`target` is this rank's part of `source`."""
        target[:] = ring.reduce_scatter(self._ring, header, source, reduction)
        if divisor > 1:
            np.divide(target, divisor, out=target)

    def all_gather(self, header: bytes, own: Array, target: Array) -> None:
        if self._is_small(own):
            np.concatenate(self._exchange(header, own), out=target)
        else:
            ring.all_gather(self._ring, header, own, target)

    def broadcast(self, header: bytes, array: Array, root: int) -> None:
        """Down a binomial tree: log2 W (a + N b). A rank's parent is its distance from the root without its lowest bit set."""
        place = (self._position - root) % self._size
        lowest = place & -place or 1 << (self._size - 1).bit_length()
        if place:
            self._neighbour(-lowest).receive(header, array)
        while lowest > 1:
            lowest >>= 1
            if place + lowest < self._size:
                self._neighbour(lowest).send(header, array)

    def barrier(self, header: bytes) -> None:
        """Dissemination: in round k tell the one 2^k further on. After log2 W rounds everyone has heard of everyone."""
        distance = 1
        while distance < self._size:
            self._neighbour(distance).send(header)
            self._neighbour(-distance).receive(header)
            distance *= 2

    def _exchange(self, header: bytes, flat: Array) -> list[Array]:
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

    def _neighbour(self, distance: int) -> Peer:
        """The member so many places further on."""
        peer = self._peers[(self._position + distance) % self._size]
        assert peer is not None
        return peer

    def _is_small(self, flat: Array) -> bool:
        return flat.nbytes * (self._size - 1) <= self._direct_bytes
