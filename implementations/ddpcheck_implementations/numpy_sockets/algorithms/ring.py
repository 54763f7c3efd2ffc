"""Ring algorithms: every rank sends to the next one only, and every rank sends the same number of bytes.

The array is cut into W chunks. In step s of reduce-scatter, rank r sends chunk r - s to rank r + 1, and adds the
chunk r - s - 1 that arrives to its own. After W - 1 steps rank r holds the finished chunk r + 1. All-gather sends
finished chunks round the same way for another W - 1 steps. That makes 2 (W - 1) steps, in each of which a rank sends
1/W of the data: for N bytes, a latency `a`, and `b` and `r` to send and to add a byte, they take

    all_reduce  2 (W - 1) a + 2 (W - 1)/W N b + (W - 1)/W N r      reduce_scatter, all_gather of N bytes in all: half of it

In each step a rank sends the piece received in the step before. So there are no steps in the code: it is one stream of
the bytes of chunks r, r - 1, r - 2, ... of which a rank sends all but the last chunk and receives all but the first. Two
cursors say how far: a rank may send its first chunk, and then as far as it has received (and added up). Nothing waits
for the end of a step, and sending and receiving go on at the same time, so no array is too large for the kernel's buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ddpcheck.seeded_values import Array

from ..connections.peer import Peer, as_bytes, wait_for

SCRATCH_BYTES = 1 << 20
"""What arrives to be added is received here: it stays in the cache."""
GRAIN_BYTES = 64 * 1024
"""It is added, and sent on, when there is so much of it."""
SEND_BYTES = 1 << 20
"""Sent at once, before it is the other direction's turn."""


def _scratch() -> Array:
    return np.empty(SCRATCH_BYTES, np.uint8)


@dataclass(frozen=True, slots=True)
class Ring:
    """This rank's place: its position among `size`, and its neighbours (one and the same if size is 2)."""

    position: int
    size: int
    previous: Peer
    next: Peer
    scratch: Array = field(default_factory=_scratch)


def all_reduce(ring: Ring, header: bytes, source: Array, target: Array, reduction: np.ufunc) -> None:
    """The reduction of the flat array `source`: the same bits on all ranks, since one rank computes each element."""
    bounds = [source.size * chunk // ring.size for chunk in range(ring.size + 1)]
    steps = ring.size - 1
    _circulate(ring, header, source, target, bounds, ring.position, steps, steps, reduction)


def reduce_scatter(ring: Ring, header: bytes, source: Array, reduction: np.ufunc) -> Array:
    """This rank's chunk of the reduction. The stream starts one chunk earlier, so that it ends with this one."""
    target = np.empty_like(source)
    each = source.size // ring.size
    bounds = [each * chunk for chunk in range(ring.size + 1)]
    first = (ring.position - 1) % ring.size
    _circulate(ring, header, source, target, bounds, first, ring.size - 1, 0, reduction)
    return target[bounds[ring.position] : bounds[ring.position + 1]]


def all_gather(ring: Ring, header: bytes, own: Array, target: Array) -> None:
    """The flat arrays of all ranks, one behind the other."""
    bounds = [own.size * chunk for chunk in range(ring.size + 1)]
    target[bounds[ring.position] : bounds[ring.position + 1]] = own
    _circulate(ring, header, target, target, bounds, ring.position, 0, ring.size - 1, np.add)


def _circulate(
    ring: Ring,
    header: bytes,
    source: Array,
    target: Array,
    bounds: Sequence[int],
    first: int,
    reducing: int,
    gathering: int,
    reduction: np.ufunc,
) -> None:
    """Send chunks first, first - 1, ...; of those that arrive, combine the first `reducing` with `source`, keep the others."""
    item = source.itemsize
    own, result = as_bytes(source), as_bytes(target)
    chunks = [(first - step) % ring.size for step in range(reducing + gathering + 1)]
    places = [(bounds[chunk] * item, bounds[chunk + 1] * item) for chunk in chunks]
    outgoing = [(own if step == 0 else result, *place) for step, place in enumerate(places[:-1])]
    incoming = [(step < reducing, *place) for step, place in enumerate(places[1:])]
    scratch = ring.scratch.view(source.dtype)
    scratch_bytes = ring.scratch.data
    previous, next_ = ring.previous, ring.next

    next_.start_stream(header)
    previous.receive(header)
    may_send = places[0][1] - places[0][0]  # bytes, more with everything that is finished here
    waiting = 0  # bytes in the scratch
    while True:
        while outgoing and outgoing[0][1] == outgoing[0][2]:
            del outgoing[0]
        while incoming and incoming[0][1] == incoming[0][2]:
            del incoming[0]
        if not outgoing and not incoming:
            break
        moved = 0
        if outgoing and may_send:
            memory, start, stop = outgoing[0]
            moved = next_.send_some(memory[start : min(stop, start + may_send, start + SEND_BYTES)])
            outgoing[0] = memory, start + moved, stop
            may_send -= moved
        if incoming:
            reduces, start, stop = incoming[0]
            finished = 0
            if reduces:
                room = scratch_bytes[waiting : min(stop - start, SCRATCH_BYTES)]
                got = previous.receive_some(room)
                waiting += got
                if waiting >= GRAIN_BYTES or waiting == stop - start:
                    count = waiting // item
                    finished = count * item
                    place = slice(start // item, start // item + count)
                    reduction(source[place], scratch[:count], out=target[place])
                    waiting -= finished
                    scratch_bytes[:waiting] = scratch_bytes[finished : finished + waiting]  # half an element, if any
            else:
                got = finished = previous.receive_some(result[start:stop])
            moved += got
            may_send += finished
            incoming[0] = reduces, start + finished, stop
        if not moved:
            wait_for(previous if incoming else None, next_ if outgoing and may_send else None)
    next_.end_stream(reducing + gathering)
