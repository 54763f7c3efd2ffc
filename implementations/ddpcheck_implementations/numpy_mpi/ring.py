"""The mean of a large array by a ring over MPI. Each rank divides its chunk while the chunk is in the cache.

MPI has no mean. Dividing after MPI_Allreduce is a second pass over memory, which adds a third to the time. Here a
reduce-scatter gives each rank its chunk of the sums in W - 1 steps; the rank divides it, and an all-gather distributes all
chunks in W - 1 steps, as in numpy_sockets/algorithms/ring.py. Costs for N bytes per rank and W ranks, with latency `a`, and `b`
and `r` seconds to send and to add one byte:

    mean    2 (W - 1) a N/P + 2 (W - 1)/W N b + (W - 1)/W N r      in pieces of P bytes
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

_PIECE_BYTES = 2 << 20
"""A chunk and the received chunk that is added to it stay in a core's cache."""
_TAG = 1
"""The tag of these messages; MpiCommunicator.send uses another."""


def mean(comm: Any, flat: Array) -> None:
    """Average a flat array over the ranks of an mpi4py communicator, in place; all ranks get the same bits."""
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
