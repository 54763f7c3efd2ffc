"""Collectives of ranks that have met: over one connection to every other rank, in memory, or both (transport_choice.py).

Groups share connections and memory; a rank takes part in the operations of its groups in the order of its calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ddpcheck.seeded_values import Array

from .background import Pending
from .connections import wire_format
from .connections.lookout import Lookout
from .connections.peer import Link, Peer, Traffic
from .group import Group
from .meeting.host import Hosts
from .operation_order import Guard
from .shared_memory.collectives import Channel, Host
from .shared_memory.mapping import WORTH_BYTES
from .shared_memory.small_reductions import express_of
from .transport_choice import algorithms_of

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

_NO_ELEMENTS = np.empty(0, np.float64)


class Communicator:
    """The collectives facet; ddpcheck.contract.adapter.Collectives documents its methods. `traffic` counts bytes sent.

    After an error it cannot be used any more (operation_order.py).
    """

    def __init__(
        self,
        rank: int,
        world_size: int,
        peers: Mapping[int, Peer],
        traffic: Traffic,
        lookout: Lookout,
        *,
        host: Host | None = None,
        hosts: Hosts = (),
        algorithm: str = "",
    ) -> None:
        self.rank = rank
        self.world_size = world_size
        self.traffic = traffic
        self._peers = peers
        self._lookout = lookout
        self._guard = Guard(rank, peers)
        self._algorithm = algorithm
        self._host, self._hosts = host, hosts
        self._links: dict[int, Link] = dict(peers)
        if host is not None:
            self._links |= {other: Channel(host.board, line) for other, line in host.board.lines.items()}
        self._groups: dict[tuple[int, ...], Group] = {}
        self._world = self._of(range(world_size))
        if host is not None:
            self._world.express = express_of(host.board, self._world, self._guard, algorithm)
        self._sent: dict[int, int] = dict.fromkeys(peers, 0)
        self._received: dict[int, int] = dict.fromkeys(peers, 0)

    # -------------------------------------------------------------------------------------------------------- the facet

    def all_reduce(self, array: Array, op: str = "sum", *, group: Sequence[int] | None = None) -> Array:
        members = self._world if group is None else self._of(group)
        express = members.express
        if express is not None and array.nbytes <= express.limit:
            result = np.empty(array.shape, array.dtype)
            express.reduce("all_reduce", op, array, array, result)
            return result
        return self._guard.now(self._all_reduce, members, members.header("all_reduce", array, op), array, op)

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Sequence[int] | None = None) -> Pending:
        """Run in the background, in the order of the calls: after all earlier ones and before all later ones."""
        members = self._of(group)
        header = members.header("all_reduce", array, op)
        return self._guard.later(self._all_reduce, members, header, array, op)

    def all_reduce_in_place(self, array: Array, op: str = "sum", *, group: Sequence[int] | None = None) -> None:
        """As all_reduce, into the array itself, which is C-contiguous and writeable; fastest if empty() has made it."""
        flags = array.flags
        if not (flags.carray or (flags.c_contiguous and flags.writeable)):
            raise ValueError("all_reduce_in_place needs an array that is C-contiguous and writeable: pass a copy")
        members = self._world if group is None else self._of(group)
        express = members.express
        if express is not None and array.nbytes <= WORTH_BYTES:
            express.reduce("all_reduce_in_place", op, array, array, array)
            return
        header = members.header("all_reduce_in_place", array, op)
        algorithms = members.algorithms
        if algorithms is not None:
            divisor = members.size if op == "mean" else 1
            self._guard.now(
                algorithms.all_reduce_in_place, header, array.reshape(-1), wire_format.REDUCTIONS[op], divisor
            )

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """An array of the caller's own, in memory that the other ranks of this host can reach; freed as any other."""
        return np.empty(shape, dtype) if self._host is None else self._host.pool.empty(shape, dtype)

    def broadcast(self, array: Array, root: int = 0, *, group: Sequence[int] | None = None) -> Array:
        members = self._of(group)
        if root not in members.ranks:
            raise ValueError(
                f"rank {root} cannot be the root of a broadcast to ranks {members.ranks}: choose one of them"
            )
        header = members.header("broadcast", array, root)
        result = np.array(array, order="C") if root == self.rank else np.empty(array.shape, array.dtype)
        if members.algorithms is not None:
            self._guard.now(members.algorithms.broadcast, header, result.reshape(-1), members.ranks.index(root))
        return result

    def all_gather(self, array: Array, *, group: Sequence[int] | None = None) -> Array:
        members = self._of(group)
        header = members.header("all_gather", array)
        result = self.empty((members.size, *array.shape), array.dtype)
        if members.algorithms is None:
            result[0] = array
        else:
            self._guard.now(members.algorithms.all_gather, header, array.ravel(), result.reshape(-1))
        return result

    def reduce_scatter(self, array: Array, op: str = "sum", *, group: Sequence[int] | None = None) -> Array:
        members = self._of(group)
        if not array.ndim or array.shape[0] % members.size:
            raise ValueError(
                f"reduce_scatter over {members.size} ranks cannot share out the rows of shape {array.shape}"
            )
        rows = array.shape[0] // members.size
        express = members.express
        if express is not None and array.nbytes <= express.limit:
            mine = array[self.rank * rows : (self.rank + 1) * rows]
            result = np.empty(mine.shape, array.dtype)
            express.reduce("reduce_scatter", op, array, mine, result)
            return result
        header = members.header("reduce_scatter", array, op)
        algorithms = members.algorithms
        if algorithms is None:
            return np.array(array, order="C")
        result = self.empty((rows, *array.shape[1:]), array.dtype)
        divisor = members.size if op == "mean" else 1
        self._guard.now(
            algorithms.reduce_scatter, header, array.ravel(), result.reshape(-1), wire_format.REDUCTIONS[op], divisor
        )
        return result

    def barrier(self, *, group: Sequence[int] | None = None) -> None:
        members = self._of(group)
        if members.express is not None:
            members.express.reduce("barrier", "sum", _NO_ELEMENTS, _NO_ELEMENTS, _NO_ELEMENTS)
            return
        header = members.header("barrier", _NO_ELEMENTS)
        if members.algorithms is not None:
            self._guard.now(members.algorithms.barrier, header)

    def send(self, array: Array, dest: int) -> None:
        peer = self._peer(dest)
        header = wire_format.pack("send", array, sequence=self._sent[dest])
        self._sent[dest] += 1
        self._guard.now(peer.send, header, array.ravel())

    def recv(self, array: Array, source: int) -> Array:
        peer = self._peer(source)
        header = wire_format.pack("send", array, sequence=self._received[source])
        self._received[source] += 1
        result = np.empty(array.shape, array.dtype)
        self._guard.now(peer.receive, header, result.reshape(-1))
        return result

    def counts(self) -> dict[str, int]:
        """Bytes and messages sent since the start, headers included, and the number of collectives begun."""
        traffic = self.traffic
        return {
            "bytes": traffic.payload_bytes + traffic.header_bytes,
            "messages": traffic.messages,
            "collectives": sum(group.begun for group in self._groups.values()),
        }

    def close(self) -> None:
        """Close in order: operations under way are finished first, and sent messages still arrive."""
        self._guard.background.stop()
        for peer in self._peers.values():
            peer.close()
        self._lookout.close()
        self._world.express = None  # which has the group, and the memory
        host, self._host = self._host, None
        if host is not None:
            host.close()

    def _all_reduce(self, members: Group, header: bytes, array: Array, op: str) -> Array:
        if members.algorithms is None:
            return np.array(array, order="C")
        result = self.empty(array.shape, array.dtype)
        divisor = members.size if op == "mean" else 1
        members.algorithms.all_reduce(header, array.ravel(), result.reshape(-1), wire_format.REDUCTIONS[op], divisor)
        return result

    def _of(self, group: Sequence[int] | None) -> Group:
        if group is None:
            return self._world
        ranks = tuple(group)
        known = self._groups.get(ranks)
        if known is None:
            if self.rank not in ranks or list(ranks) != sorted({*ranks} & {*range(self.world_size)}):
                raise ValueError(
                    f"{ranks} is no group for rank {self.rank} of {self.world_size}: name ranks in ascending order, with this one"
                )
            way = algorithms_of(ranks, self.rank, self._peers, self._host, self._hosts, self._algorithm)
            known = self._groups[ranks] = Group(ranks, way)
        return known

    def _peer(self, rank: int) -> Link:
        try:
            return self._links[rank]
        except KeyError:
            raise ValueError(
                f"rank {self.rank} cannot exchange with rank {rank}: choose another of {self.world_size}"
            ) from None
