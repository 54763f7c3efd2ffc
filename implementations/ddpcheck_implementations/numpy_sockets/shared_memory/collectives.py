"""Collectives of ranks that share memory. Sums are added in rank order, for every rank or by one rank for all: equal bits.

Costs for N bytes per rank, W ranks and blocks of B bytes. `a` is the time until one rank sees the bytes that another has
written (some 100 ns), `c` and `r` are the times to copy and to add up one byte:

all_add                 a N/B + N c + (W - 1) N r          each copies its blocks out, and adds up everybody's
owners_add              2 a N/B + 2 N c + (W - 1)/W N r    each adds up its part of every block for all
all_reduce_in_place     2 a + (W - 1)/W N (c + r)          the same, in the arrays themselves (in_place.py)
the others              a N/B + N c, and reading the blocks of the others
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ddpcheck.seeded_values import Array

from ..algorithms.choice import choice
from .in_place import Part, Parts
from .mapping import WORTH_BYTES, Mapped, Pool
from .messages import BLOCK_BYTES, Board, Line
from .pieces import pieces, reduce_into

_NOTHING = np.empty(0, np.int64)
_INTEGER = np.dtype(np.int64)


@dataclass(frozen=True, slots=True)
class Host:
    """Memory shared by the ranks of one host: the board, this rank's arrays, and those of the other ranks."""

    board: Board
    pool: Pool
    mapped: Mapping[int, Mapped]

    def close(self) -> None:
        """Nobody can reach this rank's memory any more, except where it is mapped already."""
        self.board.close()
        self.pool.close()


class Channel:
    """Messages to and from one rank."""

    def __init__(self, board: Board, line: Line) -> None:
        self._board, self._line = board, line

    def send(self, header: bytes, payload: Array) -> None:
        """May return before it was received, if it is no more than SLOTS blocks."""
        for piece in pieces(0, payload.size, BLOCK_BYTES // payload.itemsize):
            self._board.publish((self._line,), header, payload[piece], payload[piece].nbytes)

    def receive(self, header: bytes, payload: Array) -> None:
        for piece in pieces(0, payload.size, BLOCK_BYTES // payload.itemsize):
            block = payload[piece]
            block[:] = self._board.take(self._line, header, payload.dtype, block.size)
            self._board.done(self._line)


class InMemory:
    """The algorithms for ascending `ranks` of one host, `own` among them. Arrays are flat; `divisor` is 1, or W for a mean."""

    def __init__(self, ranks: tuple[int, ...], own: int, host: Host, forced: str) -> None:
        self._board = host.board
        self._size, self._position = len(ranks), ranks.index(own)
        self._lines = [host.board.lines.get(rank) for rank in ranks]  # None in this rank's own place
        self._others = [line for line in self._lines if line is not None]
        self._parts = Parts(self._position, [host.mapped.get(rank, host.pool) for rank in ranks], host.pool)
        self._choice = choice("memory", len(ranks), forced)

    def all_reduce(self, header: bytes, source: Array, target: Array, reduction: np.ufunc, divisor: int) -> None:
        """They may be the same array."""
        add = self._owners_add if self._choice(source.nbytes) == "owners_add" else self._all_add
        add(header, source, target, reduction, divisor)

    def all_reduce_in_place(self, header: bytes, array: Array, reduction: np.ufunc, divisor: int) -> None:
        part = self._part_in_regions(header, array) if array.nbytes > WORTH_BYTES else None
        if part is None:
            self.all_reduce(header, array, array, reduction, divisor)
            return
        part.reduce(reduction, divisor)
        self._board.count(0, 2 * (self._size - 1) * part.nbytes)
        self.barrier(header)  # nobody goes on before all have written

    def reduce_scatter(self, header: bytes, source: Array, target: Array, reduction: np.ufunc, divisor: int) -> None:
        """`target` is this rank's part of `source`."""
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
        """From the member in place `root` into the arrays of all others, which read it all at once."""
        line = self._lines[root]
        for piece in pieces(0, array.size, BLOCK_BYTES // array.itemsize):
            block = array[piece]
            if line is None:
                self._board.publish(self._others, header, block, block.nbytes * len(self._others))
            else:
                block[:] = self._board.take(line, header, array.dtype, block.size)
                self._board.done(line)

    def barrier(self, header: bytes) -> None:
        self._board.publish(self._others, header, _NOTHING, 0)
        for line in self._others:
            self._board.take(line, header, _INTEGER, 0)
            self._board.done(line)

    # ----------------------------------------------------------------------------------------------------- all_reduce

    def _all_add(self, header: bytes, source: Array, target: Array, reduction: np.ufunc, divisor: int) -> None:
        """Every rank adds up the blocks of all. Of two it adds its own array, and need not read its copy again."""
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
        """Every rank adds up its part of each block. Sums are fetched a block later, so that nobody waits for them."""
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
        """The parts that others have added up."""
        for line, part in zip(self._lines, parts, strict=False):
            if line is not None:
                part[:] = self._board.take(line, header, part.dtype, part.size)
                self._board.done(line)

    def _part_in_regions(self, header: bytes, array: Array) -> Part | None:
        staged = self._board.publish(self._others, header, self._parts.place(array), 0)
        part = self._parts.of(array, self._taken(header, staged))
        self._done()
        return part

    # --------------------------------------------------------------------------------------------------------- blocks

    def _ahead(
        self, header: bytes, size: int, length: int, block: Callable[[slice], Array], shares: int = 1
    ) -> Iterator[tuple[slice, Array]]:
        """Publish block after block, and yield each when the next is out, so that a rank that is late holds up nobody.

        Every other rank reads 1 / `shares` of a block.
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
        """The next blocks of all members, in rank order: `own` for this one. It is a copy if the target may be its source."""
        take, dtype, size = self._board.take, own.dtype, own.size
        return [own if line is None else take(line, header, dtype, size) for line in self._lines]

    def _done(self) -> None:
        for line in self._others:
            self._board.done(line)
