"""The mean of a large array: a ring over MPI, in which each rank divides its own chunk while that is in the cache.

MPI has no mean. To divide what its all-reduce has summed is a pass over memory of its own, and takes a third of the time again.
So sums are made here: in W - 1 steps of a reduce-scatter every rank gets its chunk of them, divides it, and in W - 1 steps of
an all-gather all get all chunks, as in numpy_sockets/ring.py. For N bytes per rank and W ranks, with a latency `a`, and `b` and
`r` to send and to add a byte:

    mean    2 (W - 1) a N/P + 2 (W - 1)/W N b + (W - 1)/W N r      in pieces of P bytes
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

_PIECE_BYTES = 2 << 20
"""A chunk, and what arrives to be added to it, stay in a core's own cache."""
_TAG = 1
"""The tag of these messages; those that this rank's user sends have another."""


def mean(comm: Any, flat: Array) -> None:
    """Of a flat array over the ranks of an mpi4py communicator, in place; the same bits on all of them."""
    rank, size = comm.Get_rank(), comm.Get_size()
    if size == 1:
        return
    after, before = (rank + 1) % size, (rank - 1) % size
    scratch = np.empty(_PIECE_BYTES // flat.itemsize, flat.dtype)
    for start in range(0, flat.size, scratch.size):
        chunks = np.array_split(flat[start : start + scratch.size], size)
        for step in range(1, size):
            chunk = chunks[(rank - step - 1) % size]
            arrived = scratch[: chunk.size]
            comm.Sendrecv(chunks[(rank - step) % size], after, _TAG, arrived, before, _TAG)
            chunk += arrived
        chunks[rank] /= size
        for step in range(size - 1):
            comm.Sendrecv(chunks[(rank - step) % size], after, _TAG, chunks[(rank - step - 1) % size], before, _TAG)
