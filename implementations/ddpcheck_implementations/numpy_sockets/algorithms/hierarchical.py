"""Hierarchical all-reduce: each host reduces in memory, hosts all-reduce their sums, each host shares the result.

So that all ranks of a host send at once, an array has lanes: as many as the smallest host has ranks, L. On each host the first
L ranks own one each. All ranks publish their arrays block by block (messages.py), of which an owner adds up its part, in rank
order. Then the owners of a lane, one of each host, all-reduce it as choice.py has it for so many, all lanes at the same time.
At last each owner publishes its lane. Large arrays go in pieces of a MiB, one after the other.

For N bytes and H hosts of L ranks each; in memory `c` and `r` are the times to copy and to add up a byte, between hosts `a` is
the latency and `b` the time to send a byte:

    all_reduce  3 N c + N r  +  a ring of H ranks for N/L bytes: 2 (H - 1) a + 2 (H - 1)/H N/L b + (H - 1)/H N/L r

2 (H - 1)/H N bytes leave a host, however many ranks it has. Each element is added up once, so all ranks have the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate, pairwise

import numpy as np

from ddpcheck.seeded_values import Array

from ..connections.peer import Peer
from ..meeting.host import Hosts
from ..shared_memory.collectives import Host
from ..shared_memory.messages import BLOCK_BYTES, Line
from ..shared_memory.pieces import pieces, reduce_into
from .choice import choice
from .over_connections import OverStreams

_PIECE_BYTES = 1024 * 1024
"""Bytes of a piece. It is still in a cache when it is shared, and links do not idle while a whole array is reduced."""
Block = tuple[slice, list[slice]]
"""Where it lies in the array, and in it the part of each lane."""


class Hierarchical(OverStreams):
    """All-reduces of `ranks` on several `hosts`, one of which has two or more of them. The rest is done over sockets.

    `host`: the memory shared with the other ranks of this host; None if there are none.
    """

    def __init__(
        self, ranks: tuple[int, ...], own: int, peers: Mapping[int, Peer], host: Host | None, hosts: Hosts, forced: str
    ) -> None:
        super().__init__(ranks, own, peers, "")
        self._way = choice("hosts", len(ranks), forced)
        members = [here for here in ([rank for rank in some if rank in ranks] for some in hosts) if here]
        here = next(some for some in members if own in some)
        lanes, place = min(len(some) for some in members), here.index(own)
        self._inside = _Inside(host, here, lanes, place) if host is not None and len(here) > 1 else None
        owners = sorted(some[place] for some in members) if place < lanes else []
        self._across = OverStreams(tuple(owners), own, peers, "") if owners else None

    def all_reduce(self, header: bytes, source: Array, target: Array, reduction: np.ufunc, divisor: int) -> None:
        """They may be the same array."""
        if self._way(source.nbytes) == "flat":
            super().all_reduce(header, source, target, reduction, divisor)
            return
        for piece in pieces(0, source.size, _PIECE_BYTES // source.itemsize):
            self._by_hosts(header, source[piece], target[piece], reduction, divisor)

    def _by_hosts(self, header: bytes, source: Array, target: Array, reduction: np.ufunc, divisor: int) -> None:
        if self._inside is None:  # there is one lane, which is the whole array
            assert self._across is not None
            self._across.all_reduce(header, source, target, reduction, divisor)
            return
        blocks = self._inside.blocks(source)
        lane, mine = self._inside.lane(blocks, source.dtype)
        self._inside.add_up(header, source, blocks, mine, reduction)
        if self._across is not None:
            self._across.all_reduce(header, lane, lane, reduction, divisor)
        self._inside.share(header, blocks, mine, target)


class _Inside:
    """This rank among those of its host: the one in `place` of `here`, of whom the first `lanes` own a lane."""

    def __init__(self, host: Host, here: list[int], lanes: int, place: int) -> None:
        self._board, self._pool = host.board, host.pool
        self._lines = [host.board.lines.get(rank) for rank in here]  # None in this rank's own place
        self._lanes, self._place = lanes, place

    def blocks(self, array: Array) -> list[Block]:
        found: list[Block] = []
        for whole in pieces(0, array.size, BLOCK_BYTES // array.itemsize):
            size = whole.stop - whole.start
            bounds = [size * lane // self._lanes for lane in range(self._lanes + 1)]
            found.append((whole, [slice(*ends) for ends in pairwise(bounds)]))
        return found

    def lane(self, blocks: list[Block], dtype: np.dtype[np.generic]) -> tuple[Array, list[Array]]:
        """Memory for this rank's lane, whole and block by block. There is none if it owns none."""
        if self._place >= self._lanes:
            return np.empty(0, dtype), []
        own = (parts[self._place] for _, parts in blocks)
        bounds = [0, *accumulate(part.stop - part.start for part in own)]
        lane = self._pool.empty((bounds[-1],), dtype)
        return lane, [lane[start:stop] for start, stop in pairwise(bounds)]

    def add_up(self, header: bytes, source: Array, blocks: list[Block], mine: list[Array], reduction: np.ufunc) -> None:
        """Publish all blocks to the owners of lanes. Each is added up when the next is out: nobody waits for a late rank."""
        owners = _others(self._lines[: self._lanes])
        for at in range(len(blocks) + 1):
            if at < len(blocks) and owners:
                block = source[blocks[at][0]]
                self._board.publish(owners, header, block, block.nbytes * len(owners) // self._lanes)
            if at and mine:
                whole, parts = blocks[at - 1]
                block = source[whole]
                shown = [block if line is None else self._taken(line, header, block) for line in self._lines]
                reduce_into([each[parts[self._place]] for each in shown], mine[at - 1], reduction, 1)
                self._done(_others(self._lines))

    def share(self, header: bytes, blocks: list[Block], mine: list[Array], target: Array) -> None:
        """Publish this rank's lane, and fetch the others."""
        owners, others = self._lines[: self._lanes], _others(self._lines)
        for at in range(len(blocks) + 1):
            if at < len(blocks) and mine:
                self._board.publish(others, header, mine[at], mine[at].nbytes * len(others))
            if at:
                whole, parts = blocks[at - 1]
                for line, part in zip(owners, parts, strict=True):
                    into = target[whole][part]
                    into[:] = mine[at - 1] if line is None else self._taken(line, header, into)
                self._done(_others(owners))

    def _taken(self, line: Line, header: bytes, like: Array) -> Array:
        """The next message from there: as many elements as this array has, of its dtype."""
        return self._board.take(line, header, like.dtype, like.size)

    def _done(self, lines: list[Line]) -> None:
        for line in lines:
            self._board.done(line)


def _others(lines: list[Line | None]) -> list[Line]:
    return [line for line in lines if line is not None]
