"""Methods of mpi4py's communicators: collectives, with the positions of send and receive buffer, and point-to-point
calls.
"""

from __future__ import annotations

BUFFERED = (
    "Allreduce", "Reduce", "Bcast", "Allgather", "Allgatherv", "Gather", "Gatherv", "Scatter", "Scatterv",
    "Reduce_scatter", "Reduce_scatter_block", "Alltoall", "Alltoallv", "Scan", "Exscan",
)  # fmt: skip
OBJECTS = ("allreduce", "reduce", "bcast", "allgather", "gather", "scatter", "alltoall", "scan", "exscan")
NOT_BLOCKING = tuple(f"I{name.lower()}" for name in BUFFERED)
BARRIERS = ("Barrier", "barrier", "Ibarrier")
REDUCTIONS = frozenset({"Allreduce", "Reduce", "Reduce_scatter", "Reduce_scatter_block"})
POINT_TO_POINT = (
    "Send", "Recv", "Isend", "Irecv", "Ssend", "Bsend", "Sendrecv", "Sendrecv_replace",
    "send", "recv", "isend", "irecv", "ssend", "bsend", "sendrecv",
)  # fmt: skip
SPLITS = ("Split", "Split_type", "Dup", "Clone", "dup", "Create", "Create_group")


def blocking(name: str) -> str:
    """The blocking call of a non-blocking one: Allreduce for Iallreduce."""
    return name[1].upper() + name[2:] if name in NOT_BLOCKING else name
