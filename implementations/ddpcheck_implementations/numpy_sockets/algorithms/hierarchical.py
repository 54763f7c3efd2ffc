"""Hierarchical all-reduce: each host reduces in memory, hosts all-reduce their sums, each host shares the result.

An array is cut into L lanes, where L is the number of ranks of the smallest host, so that L ranks of each host send at once. The
first L ranks of a host own one lane each. All ranks publish their arrays block by block (messages.py), and each owner adds up its
lane, in rank order. The owners of a lane, one on each host, all-reduce it over sockets; all lanes do so at the same time. Each
owner then publishes its lane. Large arrays are cut into pieces of 1 MiB, which follow each other.

Costs for N bytes and H hosts of L ranks each: `c` and `r` are the seconds to copy and to add up one byte in memory, `a` is the
latency between hosts, and `b` the seconds to send one byte:

    all_reduce  3 N c + N r  +  a ring of H ranks for N/L bytes: 2 (H - 1) a + 2 (H - 1)/H N/L b + (H - 1)/H N/L r

2 (H - 1)/H N bytes leave a host, whatever its number of ranks. Each element is added up once, so all ranks get the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate, pairwise

import numpy as np

from ddpcheck.seeded_values import Array

from ..connections.peer import Peer
from ..rendezvous.host_memory import Hosts
from ..shared_memory.collectives import HostMemory
from ..shared_memory.messages import BLOCK_BYTES, BoardChannel
from ..shared_memory.pieces import pieces, reduce_into
from .choice import choose_algorithm
from .over_connections import SocketCollectives

_PIECE_BYTES = 1024 * 1024
"""Bytes of a piece: small enough to be in a cache when it is published, and to keep links busy during reductions."""
Block = tuple[slice, list[slice]]
"""The slice of the array, and within it the slice of each lane."""


class HierarchicalCollectives(SocketCollectives):
    """All-reduces of `ranks` on several `hosts`, at least one with two or more. Other collectives use sockets only.

    `memory` is shared with the other ranks of this host; None if there are none.
    """

    def __init__(
        self,
        ranks: tuple[int, ...],
        own: int,
        peers: Mapping[int, Peer],
        memory: HostMemory | None,
        hosts: Hosts,
        forced: str,
    ) -> None:
        super().__init__(ranks, own, peers, "")
        self._choose_level = choose_algorithm("hosts", len(ranks), forced)
        by_host = [members for members in ([rank for rank in host if rank in ranks] for host in hosts) if members]
        local = next(members for members in by_host if own in members)
        lanes, place = min(map(len, by_host)), local.index(own)
        self._within = _WithinHost(memory, local, lanes, place) if memory is not None and len(local) > 1 else None
        owners = sorted(members[place] for members in by_host) if place < lanes else []
        self._across = SocketCollectives(tuple(owners), own, peers, "") if owners else None

    def all_reduce(self, header: bytes, source: Array, target: Array, reduction: np.ufunc, divisor: int) -> None:
        """Reduce `source` into `target`, which may be the same array."""
        if self._choose_level(source.nbytes) == "flat":
            super().all_reduce(header, source, target, reduction, divisor)
            return
        for piece in pieces(0, source.size, _PIECE_BYTES // source.itemsize):
            self._reduce_piece(header, source[piece], target[piece], reduction, divisor)

    def _reduce_piece(self, header: bytes, source: Array, target: Array, reduction: np.ufunc, divisor: int) -> None:
        if self._within is None:  # there is one lane, which is the whole array
            assert self._across is not None
            self._across.all_reduce(header, source, target, reduction, divisor)
            return
        blocks = self._within.blocks(source)
        lane, mine = self._within.lane(blocks, source.dtype)
        self._within.add_up(header, source, blocks, mine, reduction)
        if self._across is not None:
            self._across.all_reduce(header, lane, lane, reduction, divisor)
        self._within.share(header, blocks, mine, target)


class _WithinHost:
    """The part of an all-reduce in memory, among the `local` ranks of one host; the first `lanes` of them own a lane."""

    def __init__(self, memory: HostMemory, local: list[int], lanes: int, place: int) -> None:
        self._board, self._pool = memory.board, memory.pool
        self._channels = [memory.board.channels.get(rank) for rank in local]  # None in this rank's own place
        self._lanes, self._place = lanes, place

    def blocks(self, array: Array) -> list[Block]:
        """Cut an array into blocks, and each block into lanes."""
        found: list[Block] = []
        for whole in pieces(0, array.size, BLOCK_BYTES // array.itemsize):
            size = whole.stop - whole.start
            bounds = [size * lane // self._lanes for lane in range(self._lanes + 1)]
            found.append((whole, [slice(*ends) for ends in pairwise(bounds)]))
        return found

    def lane(self, blocks: list[Block], dtype: np.dtype[np.generic]) -> tuple[Array, list[Array]]:
        """Return memory for this rank's lane, whole and block by block; empty if it owns none."""
        if self._place >= self._lanes:
            return np.empty(0, dtype), []
        own = (parts[self._place] for _, parts in blocks)
        bounds = [0, *accumulate(part.stop - part.start for part in own)]
        lane = self._pool.empty((bounds[-1],), dtype)
        return lane, [lane[start:stop] for start, stop in pairwise(bounds)]

    def add_up(self, header: bytes, source: Array, blocks: list[Block], mine: list[Array], reduction: np.ufunc) -> None:
        """Publish all blocks to the owners of lanes, and add up this rank's lane.

        Block k is added up after block k + 1 is published, so a late rank delays no publishing.
        """
        owners = _others(self._channels[: self._lanes])
        for at in range(len(blocks) + 1):
            if at < len(blocks) and owners:
                block = source[blocks[at][0]]
                self._board.publish(owners, header, block, block.nbytes * len(owners) // self._lanes)
            if at and mine:
                whole, parts = blocks[at - 1]
                block = source[whole]
                arrays = [
                    block if channel is None else self._taken(channel, header, block) for channel in self._channels
                ]
                reduce_into([array[parts[self._place]] for array in arrays], mine[at - 1], reduction, 1)
                self._done(_others(self._channels))

    def share(self, header: bytes, blocks: list[Block], mine: list[Array], target: Array) -> None:
        """Publish this rank's lane, and copy all lanes into `target`."""
        owners, others = self._channels[: self._lanes], _others(self._channels)
        for at in range(len(blocks) + 1):
            if at < len(blocks) and mine:
                self._board.publish(others, header, mine[at], mine[at].nbytes * len(others))
            if at:
                whole, parts = blocks[at - 1]
                for channel, part in zip(owners, parts, strict=True):
                    into = target[whole][part]
                    into[:] = mine[at - 1] if channel is None else self._taken(channel, header, into)
                self._done(_others(owners))

    def _taken(self, channel: BoardChannel, header: bytes, like: Array) -> Array:
        """Return the next message of a channel, with the dtype and the number of elements of `like`."""
        return self._board.take(channel, header, like.dtype, like.size)

    def _done(self, channels: list[BoardChannel]) -> None:
        for channel in channels:
            self._board.done(channel)


def _others(channels: list[BoardChannel | None]) -> list[BoardChannel]:
    return [channel for channel in channels if channel is not None]
