"""Ring algorithms: every rank sends to the next one only, and every rank sends the same number of bytes.

The array is cut into W chunks. In step s of reduce-scatter, rank r sends chunk r - s to rank r + 1, and adds the chunk
r - s - 1 that arrives to its own. After W - 1 steps rank r holds the finished chunk r + 1. All-gather sends finished chunks
round the ring for another W - 1 steps. In each of these 2 (W - 1) steps a rank sends 1/W of the data. Costs for N bytes, with
latency `a`, and `b` and `r` seconds to send and to add one byte:

    all_reduce                   2 (W - 1) a + 2 (W - 1)/W N b + (W - 1)/W N r
    reduce_scatter               (W - 1) a + (W - 1)/W N b + (W - 1)/W N r
    all_gather of N bytes in all (W - 1) a + (W - 1)/W N b

In each step a rank sends the chunk received in the step before. So the code has no steps: a rank sends one stream of the bytes
of chunks r, r - 1, r - 2, ..., all but the last, and receives all but the first. It may send its first chunk, and then as
far as it has received and added up. Nothing waits for the end of a step, and sending and receiving overlap, so arrays may be
larger than the kernel's buffers.

Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ddpcheck.seeded_values import Array

from ..connections.peer import Peer, as_bytes, wait_for

SCRATCH_BYTES = 1 << 20
"""Size of the buffer for received bytes that are to be added: small enough to stay in the cache."""
REDUCE_BYTES = 64 * 1024
"""Received bytes that are added up, and may be sent on, at once."""
SEND_BYTES = 1 << 20
"""Bytes sent at once, before it is the turn of receiving."""


def _scratch() -> Array:
    return np.empty(SCRATCH_BYTES, np.uint8)


@dataclass(frozen=True, slots=True)
class Ring:
    """This rank's position in a ring of `size` ranks, and its neighbours (the same peer twice if size is 2)."""

    position: int
    size: int
    previous: Peer
    next: Peer
    scratch: Array = field(default_factory=_scratch)


def all_reduce(ring: Ring, header: bytes, source: Array, target: Array, reduction: np.ufunc) -> None:
    """Reduce flat `source` into `target`, which may be the same array. One rank computes each element: equal bits."""
    bounds = [source.size * chunk // ring.size for chunk in range(ring.size + 1)]
    steps = ring.size - 1
    _Circulation(ring, source, target, bounds, ring.position, steps, steps, reduction).run(header)


def reduce_scatter(ring: Ring, header: bytes, source: Array, reduction: np.ufunc) -> Array:
    """Return this rank's chunk of the reduction. The stream starts one chunk earlier, so that it ends with this one."""
    target = np.empty_like(source)
    each = source.size // ring.size
    bounds = [each * chunk for chunk in range(ring.size + 1)]
    first = (ring.position - 1) % ring.size
    _Circulation(ring, source, target, bounds, first, ring.size - 1, 0, reduction).run(header)
    return target[bounds[ring.position] : bounds[ring.position + 1]]


def all_gather(ring: Ring, header: bytes, own: Array, target: Array) -> None:
    """Write the flat arrays of all ranks into `target`, one behind the other."""
    bounds = [own.size * chunk for chunk in range(ring.size + 1)]
    target[bounds[ring.position] : bounds[ring.position + 1]] = own
    _Circulation(ring, target, target, bounds, ring.position, 0, ring.size - 1, np.add).run(header)


class _Circulation:
    """One stream round the ring: sends the chunks first, first - 1, ..., and receives the chunks first - 1, first - 2, ...

    Of the received chunks it combines the first `reducing` with `source`, and keeps the other `gathering` ones.
    """

    def __init__(
        self,
        ring: Ring,
        source: Array,
        target: Array,
        bounds: Sequence[int],
        first: int,
        reducing: int,
        gathering: int,
        reduction: np.ufunc,
    ) -> None:
        self._ring, self._source, self._target, self._reduction = ring, source, target, reduction
        self._item = item = source.itemsize
        own, self._result = as_bytes(source), as_bytes(target)
        chunks = [(first - step) % ring.size for step in range(reducing + gathering + 1)]
        places = [(bounds[chunk] * item, bounds[chunk + 1] * item) for chunk in chunks]
        self._outgoing = [(own if step == 0 else self._result, *place) for step, place in enumerate(places[:-1])]
        self._incoming = [(step < reducing, *place) for step, place in enumerate(places[1:])]
        self._steps = reducing + gathering
        self._scratch = ring.scratch.view(source.dtype)
        self._scratch_bytes = ring.scratch.data
        self._may_send = places[0][1] - places[0][0]  # bytes; grows with every finished byte
        self._waiting = 0  # received bytes in the scratch buffer

    def run(self, header: bytes) -> None:
        """Send and receive all chunks. PeerLost or Mismatch as Peer.receive."""
        ring = self._ring
        outgoing, incoming = self._outgoing, self._incoming
        ring.next.start_stream(header)
        ring.previous.receive(header)
        while True:
            while outgoing and outgoing[0][1] == outgoing[0][2]:
                del outgoing[0]
            while incoming and incoming[0][1] == incoming[0][2]:
                del incoming[0]
            if not outgoing and not incoming:
                break
            moved = self._send() if outgoing and self._may_send else 0
            if incoming:
                moved += self._receive()
            if not moved:
                wait_for(ring.previous if incoming else None, ring.next if outgoing and self._may_send else None)
        ring.next.end_stream(self._steps)

    def _send(self) -> int:
        """Send bytes of the current chunk, as far as they are finished. Returns how many."""
        memory, start, stop = self._outgoing[0]
        moved = self._ring.next.send_some(memory[start : min(stop, start + self._may_send, start + SEND_BYTES)])
        self._outgoing[0] = memory, start + moved, stop
        self._may_send -= moved
        return moved

    def _receive(self) -> int:
        """Receive bytes of the current chunk, and add them up or keep them. Returns how many."""
        reduces, start, stop = self._incoming[0]
        if reduces:
            got, finished = self._receive_to_reduce(start, stop)
        else:
            got = finished = self._ring.previous.receive_some(self._result[start:stop])
        self._may_send += finished
        self._incoming[0] = reduces, start + finished, stop
        return got

    def _receive_to_reduce(self, start: int, stop: int) -> tuple[int, int]:
        """Receive into the scratch buffer, and add up when there is enough. Returns received and finished bytes."""
        scratch, item = self._scratch_bytes, self._item
        got = self._ring.previous.receive_some(scratch[self._waiting : min(stop - start, SCRATCH_BYTES)])
        self._waiting += got
        if self._waiting < REDUCE_BYTES and self._waiting < stop - start:
            return got, 0
        count = self._waiting // item
        finished = count * item
        place = slice(start // item, start // item + count)
        self._reduction(self._source[place], self._scratch[:count], out=self._target[place])
        self._waiting -= finished
        scratch[: self._waiting] = scratch[finished : finished + self._waiting]  # the half of an element, if any
        return got, finished
