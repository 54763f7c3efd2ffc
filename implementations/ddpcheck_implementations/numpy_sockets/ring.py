"""Ring algorithms: every rank sends to the next one only, and every rank sends the same number of bytes.

The array is cut into W chunks. In step s of reduce-scatter, rank r sends chunk r - s to rank r + 1, and adds the
chunk r - s - 1 that arrives to its own. After W - 1 steps rank r holds the finished chunk r + 1. All-gather sends
finished chunks round the same way for another W - 1 steps. That makes 2 (W - 1) steps, in each of which a rank sends
1/W of the data.

What a rank sends in a step is what it received in the step before. So there are no steps in the code: it is one
stream of chunks r, r - 1, r - 2, ... of which a rank sends all but the last and receives all but the first, and it
may send as far as it has received. Chunks travel in blocks that fit the cache, each sent on as soon as it is reduced;
sending and receiving go on at the same time, so no array is too large for the buffers of the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddpcheck.values import Array

from .peer import Peer, as_bytes, wait_for

BLOCK_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Ring:
    """This rank's place: its position among `size`, and its neighbours (one and the same if size is 2)."""

    position: int
    size: int
    previous: Peer
    next: Peer


def all_reduce(ring: Ring, header: bytes, source: Array, reduction: np.ufunc) -> Array:
    """The reduction of the flat array `source`: the same bits on all ranks, since one rank computes each element."""
    target = np.empty_like(source)
    bounds = [source.size * chunk // ring.size for chunk in range(ring.size + 1)]
    steps = ring.size - 1
    _circulate(ring, header, source, target, bounds, ring.position, steps, steps, reduction)
    return target


def reduce_scatter(ring: Ring, header: bytes, source: Array, reduction: np.ufunc) -> Array:
    """This rank's chunk of the reduction. The stream starts one chunk earlier, so that it ends with this one."""
    target = np.empty_like(source)
    each = source.size // ring.size
    bounds = [each * chunk for chunk in range(ring.size + 1)]
    first = (ring.position - 1) % ring.size
    _circulate(ring, header, source, target, bounds, first, ring.size - 1, 0, reduction)
    return target[bounds[ring.position] : bounds[ring.position + 1]]


def all_gather(ring: Ring, header: bytes, own: Array) -> Array:
    """The flat arrays of all ranks, one behind the other."""
    target = np.empty(own.size * ring.size, own.dtype)
    bounds = [own.size * chunk for chunk in range(ring.size + 1)]
    target[bounds[ring.position] : bounds[ring.position + 1]] = own
    _circulate(ring, header, target, target, bounds, ring.position, 0, ring.size - 1, np.add)
    return target


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
    per_block = BLOCK_BYTES // source.itemsize
    chunks = [(first - step) % ring.size for step in range(reducing + gathering + 1)]
    blocks = [_blocks(bounds[chunk], bounds[chunk + 1], per_block) for chunk in chunks]
    outgoing = [block for chunk in blocks[:-1] for block in chunk]
    incoming = [block for chunk in blocks[1:] for block in chunk]
    of_source = len(blocks[0])  # what this rank sends before it has received anything is its own
    to_reduce = sum(map(len, blocks[1 : reducing + 1]))

    item = source.itemsize
    own, result = as_bytes(source), as_bytes(target)
    scratch = np.empty(min(per_block, source.size), source.dtype)
    scratch_bytes = as_bytes(scratch)
    previous, next_ = ring.previous, ring.next
    next_.start_stream(header)
    previous.receive(header)
    sent = received = 0  # whole blocks
    sent_bytes = received_bytes = 0  # of the block under way
    while sent < len(outgoing) or received < len(incoming):
        moved = 0
        may_send = sent < min(len(outgoing), of_source + received)
        if may_send:
            start, stop = outgoing[sent]
            moved = next_.send_some((own if sent < of_source else result)[start * item + sent_bytes : stop * item])
            sent_bytes += moved
            if sent_bytes == (stop - start) * item:
                sent, sent_bytes = sent + 1, 0
        if received < len(incoming):
            start, stop = incoming[received]
            reduces = received < to_reduce
            into = scratch_bytes[: (stop - start) * item] if reduces else result[start * item : stop * item]
            more = previous.receive_some(into[received_bytes:])
            moved += more
            received_bytes += more
            if received_bytes == (stop - start) * item:
                if reduces:
                    reduction(source[start:stop], scratch[: stop - start], out=target[start:stop])
                received, received_bytes = received + 1, 0
        if not moved:
            wait_for(previous if received < len(incoming) else None, next_ if may_send else None)
    next_.end_stream(reducing + gathering)


def _blocks(start: int, stop: int, length: int) -> list[tuple[int, int]]:
    """The range in pieces of at most `length`; none if it is empty."""
    return [(at, min(at + length, stop)) for at in range(start, stop, length)]
