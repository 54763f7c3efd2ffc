"""Groups of ranks: the algorithms that move a group's bytes, and the number of operations that its ranks have begun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from ddpcheck.seeded_values import Array

from .algorithms.choice import ALGORITHMS
from .algorithms.hierarchical import HierarchicalCollectives
from .algorithms.over_connections import SocketCollectives
from .connections import wire_format
from .connections.peer import Peer
from .rendezvous.host_memory import Hosts
from .shared_memory.collectives import HostMemory, SharedMemoryCollectives


class GroupCollectives(Protocol):
    """The collectives of two or more ranks, on flat arrays. A mean is a sum with `divisor` W; else `divisor` is 1."""

    def all_reduce(self, header: bytes, source: Array, target: Array, reduction: np.ufunc, divisor: int) -> None: ...

    def all_reduce_in_place(self, header: bytes, array: Array, reduction: np.ufunc, divisor: int) -> None: ...

    def reduce_scatter(
        self, header: bytes, source: Array, target: Array, reduction: np.ufunc, divisor: int
    ) -> None: ...

    def all_gather(self, header: bytes, own: Array, target: Array) -> None: ...

    def broadcast(self, header: bytes, array: Array, root: int) -> None: ...

    def barrier(self, header: bytes) -> None: ...


class Express(Protocol):
    """Reductions of small arrays, of up to `limit` bytes (shared_memory/express.py)."""

    @property
    def limit(self) -> int: ...
    def reduce(self, operation: str, op: str, array: Array, mine: Array, target: Array) -> None: ...


class Group:
    """Ranks in ascending order, this one among them.

    `algorithms` is None for a group of one rank. Arrays of up to `express.limit` bytes go by `express`, if there is one.
    """

    def __init__(self, ranks: Sequence[int], algorithms: GroupCollectives | None) -> None:
        self.ranks = tuple(ranks)
        self.size = len(self.ranks)
        self.algorithms = algorithms
        self.express: Express | None = None
        self._code = wire_format.group_code(self.ranks)
        self.begun = 0

    def reduction(self, op: str) -> tuple[np.ufunc, int]:
        """Return the function of a reduction, and the divisor of its result, which is 1 unless `op` is "mean"."""
        return wire_format.REDUCTIONS[op], self.size if op == "mean" else 1

    def header(self, operation: str, array: Array, detail: int | str = 0) -> bytes:
        """Return the header of this group's next operation, and count it."""
        packed = wire_format.pack(operation, array, detail, self._code, self.begun)
        self.begun += 1
        return packed


def group_collectives(
    ranks: tuple[int, ...], own: int, peers: Mapping[int, Peer], memory: HostMemory | None, hosts: Hosts, forced: str
) -> GroupCollectives | None:
    """Return collectives through memory, sockets or both for ascending `ranks`, with `own`; None for one rank.

    All ranks pass the same `hosts` and the same `forced` algorithm ("" for none), so that they choose the same.
    """
    if len(ranks) == 1:
        return None
    members_by_host = [len({*ranks} & {*host}) for host in hosts]
    if memory is not None and len(ranks) in members_by_host:
        return SharedMemoryCollectives(ranks, own, memory, forced)
    if max(members_by_host, default=1) > 1 and forced not in ALGORITHMS["sockets"]:
        return HierarchicalCollectives(ranks, own, peers, memory, hosts, forced)
    return SocketCollectives(ranks, own, peers, forced)
