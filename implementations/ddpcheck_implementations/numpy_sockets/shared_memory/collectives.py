"""Collectives of ranks that share memory. Every rank adds up in rank order, or one rank for all, so all get the same bits.

Costs for N bytes per rank, W ranks and blocks of B bytes. `a` is the latency, until one rank sees the bytes that another has
written (some 100 ns); `c` and `r` are the seconds to copy and to add up one byte:

all_add                 a N/B + N c + (W - 1) N r          each publishes its blocks, and adds up those of all ranks
owners_add              2 a N/B + 2 N c + (W - 1)/W N r    each adds up its part of every block, and publishes it
all_reduce_in_place     2 a + (W - 1)/W N (c + r)          each adds up its part in the arrays themselves (in_place.py)
the others              a N/B + N c, and reading the blocks of the others
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ddpcheck.seeded_values import Array

from ..algorithms.choice import choose_algorithm
from .in_place import InPlacePart, InPlaceParts
from .mapping import MIN_REGION_BYTES, MappedRegions, RegionPool
from .messages import BLOCK_BYTES, BoardChannel, MessageBoard
from .pieces import pieces, reduce_into

_NOTHING = np.empty(0, np.int64)
_INTEGER = np.dtype(np.int64)


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Memory shared by the ranks of one host: the board, this rank's arrays, and those of the other ranks."""

    board: MessageBoard
    pool: RegionPool
    mapped: Mapping[int, MappedRegions]

    def close(self) -> None:
        """Let no rank map this rank's memory any more. Existing mappings stay."""
        self.board.close()
        self.pool.close()


class SharedMemoryLink:
    """Messages to and from one rank of this host."""

    def __init__(self, board: MessageBoard, channel: BoardChannel) -> None:
        self._board, self._channel = board, channel

    def send(self, header: bytes, payload: Array) -> None:
        """Send a message; return before it is received if it has at most SLOTS blocks."""
        for piece in pieces(0, payload.size, BLOCK_BYTES // payload.itemsize):
            self._board.publish((self._channel,), header, payload[piece], payload[piece].nbytes)

    def receive(self, header: bytes, payload: Array) -> None:
        for piece in pieces(0, payload.size, BLOCK_BYTES // payload.itemsize):
            block = payload[piece]
            block[:] = self._board.take(self._channel, header, payload.dtype, block.size)
            self._board.done(self._channel)


class SharedMemoryCollectives:
    """GroupCollectives of ascending `ranks` of one host, `own` among them."""

    def __init__(self, ranks: tuple[int, ...], own: int, memory: HostMemory, forced: str) -> None:
        self._board = memory.board
        self._size, self._position = len(ranks), ranks.index(own)
        self._channels = [memory.board.channels.get(rank) for rank in ranks]  # None in this rank's own place
        self._others = [channel for channel in self._channels if channel is not None]
        self._parts = InPlaceParts(
            self._position, [memory.mapped.get(rank, memory.pool) for rank in ranks], memory.pool
        )
        self._choose = choose_algorithm("memory", len(ranks), forced)

    def all_reduce(self, header: bytes, source: Array, target: Array, reduction: np.ufunc, divisor: int) -> None:
        """Reduce `source` into `target`, which may be the same array."""
        add = self._owners_add if self._choose(source.nbytes) == "owners_add" else self._all_add
        add(header, source, target, reduction, divisor)

    def all_reduce_in_place(self, header: bytes, array: Array, reduction: np.ufunc, divisor: int) -> None:
        part = self._part_in_regions(header, array) if array.nbytes > MIN_REGION_BYTES else None
        if part is None:
            self.all_reduce(header, array, array, reduction, divisor)
            return
        part.reduce(reduction, divisor)
        self._board.count(0, 2 * (self._size - 1) * part.nbytes)
        self.barrier(header)  # no rank continues before all have written

    def reduce_scatter(self, header: bytes, source: Array, target: Array, reduction: np.ufunc, divisor: int) -> None:
        """Reduce into `target`, which has the size of this rank's chunk of `source`."""
        rows = source.reshape(self._size, -1)
        length = BLOCK_BYTES // (source.itemsize * self._size)
        for piece, staged in self._ahead(header, target.size, length, lambda piece: rows[:, piece], self._size):
            blocks = [block.reshape(self._size, -1)[self._position] for block in self._taken(header, staged)]
            reduce_into(blocks, target[piece], reduction, divisor)
            self._done()

    def all_gather(self, header: bytes, own: Array, target: Array) -> None:
        rows = target.reshape(self._size, -1)
        for piece, staged in self._ahead(header, own.size, BLOCK_BYTES // own.itemsize, lambda piece: own[piece]):
            for row, block in zip(rows, self._taken(header, staged), strict=True):
                row[piece] = block
            self._done()

    def broadcast(self, header: bytes, array: Array, root: int) -> None:
        """Broadcast in place from the member in place `root`; all others read each block at the same time."""
        channel = self._channels[root]
        for piece in pieces(0, array.size, BLOCK_BYTES // array.itemsize):
            block = array[piece]
            if channel is None:
                self._board.publish(self._others, header, block, block.nbytes * len(self._others))
            else:
                block[:] = self._board.take(channel, header, array.dtype, block.size)
                self._board.done(channel)

    def barrier(self, header: bytes) -> None:
        self._board.publish(self._others, header, _NOTHING, 0)
        for channel in self._others:
            self._board.take(channel, header, _INTEGER, 0)
            self._board.done(channel)

    # ----------------------------------------------------------------------------------------------------- all_reduce

    def _all_add(self, header: bytes, source: Array, target: Array, reduction: np.ufunc, divisor: int) -> None:
        """Add up the blocks of all ranks. One of two ranks adds its array itself, not its published copy."""
        if source.nbytes <= BLOCK_BYTES:
            staged = self._board.publish(self._others, header, source, source.nbytes * len(self._others))
            self._add(header, source, staged, target, reduction, divisor)
            return
        for piece, staged in self._ahead(
            header, source.size, BLOCK_BYTES // source.itemsize, lambda piece: source[piece]
        ):
            self._add(header, source[piece], staged, target[piece], reduction, divisor)

    def _add(
        self, header: bytes, source: Array, staged: Array, target: Array, reduction: np.ufunc, divisor: int
    ) -> None:
        reduce_into(self._taken(header, source if self._size == 2 else staged), target, reduction, divisor)
        self._done()

    def _owners_add(self, header: bytes, source: Array, target: Array, reduction: np.ufunc, divisor: int) -> None:
        """Add up this rank's part of each block, and copy the other parts one block later, so that no rank waits for them."""
        board, others, size = self._board, self._others, self._size
        before: list[Array] = []  # the block before, part by part
        for piece, staged in self._ahead(
            header, source.size, BLOCK_BYTES // source.itemsize, lambda piece: source[piece], size
        ):
            bounds = [staged.size * part // size for part in range(size + 1)]
            parts = [target[piece][start:stop] for start, stop in pairwise(bounds)]
            own = parts[self._position]
            mine = slice(*bounds[self._position : self._position + 2])
            reduce_into([block[mine] for block in self._taken(header, staged)], own, reduction, divisor)
            self._done()
            board.publish(others, header, own, own.nbytes * len(others))
            self._fetch(header, before)
            before = parts
        self._fetch(header, before)

    def _fetch(self, header: bytes, parts: list[Array]) -> None:
        """Copy the parts that other ranks have added up."""
        for channel, part in zip(self._channels, parts, strict=False):
            if channel is not None:
                part[:] = self._board.take(channel, header, part.dtype, part.size)
                self._board.done(channel)

    def _part_in_regions(self, header: bytes, array: Array) -> InPlacePart | None:
        staged = self._board.publish(self._others, header, self._parts.place(array), 0)
        part = self._parts.find(array, self._taken(header, staged))
        self._done()
        return part

    # --------------------------------------------------------------------------------------------------------- blocks

    def _ahead(
        self, header: bytes, size: int, length: int, block: Callable[[slice], Array], shares: int = 1
    ) -> Iterator[tuple[slice, Array]]:
        """Publish block after block, and yield each once the next is published, so that a late rank delays no publishing.

        `block` maps a slice to its array. Every other rank reads 1 / `shares` of a block.
        """
        waiting: tuple[slice, Array] | None = None
        for piece in pieces(0, size, length):
            part = block(piece)
            staged = self._board.publish(self._others, header, part, part.nbytes * (self._size - 1) // shares)
            if waiting is not None:
                yield waiting
            waiting = piece, staged
        assert waiting is not None
        yield waiting

    def _taken(self, header: bytes, own: Array) -> list[Array]:
        """Return the next blocks of all members, in rank order. `own` is this rank's; a copy if the target may be its source."""
        take, dtype, size = self._board.take, own.dtype, own.size
        return [own if channel is None else take(channel, header, dtype, size) for channel in self._channels]

    def _done(self) -> None:
        for channel in self._others:
            self._board.done(channel)
