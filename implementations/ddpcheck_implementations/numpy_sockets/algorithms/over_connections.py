"""Collectives over one socket to every other rank, by the algorithm that choice.py names.

In every algorithm all ranks combine the same numbers in the same order, or receive the result, so all get the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ddpcheck.seeded_values import Array

from ..connections.peer import Peer
from ..shared_memory.pieces import divide
from . import all_to_all, recursive_doubling, recursive_halving, ring, tree
from .choice import choose_algorithm
from .ring import Ring


class SocketCollectives:
    """GroupCollectives of ascending `ranks`, `own` among them; `peers` has a connection to each of the others."""

    def __init__(self, ranks: tuple[int, ...], own: int, peers: Mapping[int, Peer], forced: str) -> None:
        self._position = position = ranks.index(own)
        self._peers = members = [peers.get(rank) for rank in ranks]  # None in this rank's own place
        previous, next_ = members[position - 1], members[(position + 1) % len(ranks)]
        assert previous is not None
        assert next_ is not None
        self._ring = Ring(position, len(ranks), previous, next_)
        self._hypercube = recursive_doubling.Hypercube.of(members, position)
        self._choose = choose_algorithm("sockets", len(ranks), forced)

    def all_reduce(self, header: bytes, source: Array, target: Array, reduction: np.ufunc, divisor: int) -> None:
        """Reduce `source` into `target`, which may be the same array."""
        match self._choose(source.nbytes):
            case "direct":
                all_to_all.all_reduce(self._peers, self._position, header, source, target, reduction)
            case "doubling":
                recursive_doubling.all_reduce(self._hypercube, header, source, target, reduction)
            case "halving":
                recursive_halving.all_reduce(self._hypercube, header, source, target, reduction)
            case _:
                ring.all_reduce(self._ring, header, source, target, reduction)
        if divisor > 1:
            divide(target, divisor)

    def all_reduce_in_place(self, header: bytes, array: Array, reduction: np.ufunc, divisor: int) -> None:
        self.all_reduce(header, array, array, reduction, divisor)

    def reduce_scatter(self, header: bytes, source: Array, target: Array, reduction: np.ufunc, divisor: int) -> None:
        """Reduce into `target`, which has the size of this rank's chunk of `source`."""
        target[:] = ring.reduce_scatter(self._ring, header, source, reduction)
        if divisor > 1:
            divide(target, divisor)

    def all_gather(self, header: bytes, own: Array, target: Array) -> None:
        if self._choose(own.nbytes) == "ring":
            ring.all_gather(self._ring, header, own, target)
        else:
            np.concatenate(all_to_all.exchange(self._peers, self._position, header, own), out=target)

    def broadcast(self, header: bytes, array: Array, root: int) -> None:
        tree.broadcast(self._peers, self._position, header, array, root)

    def barrier(self, header: bytes) -> None:
        tree.barrier(self._peers, self._position, header)
