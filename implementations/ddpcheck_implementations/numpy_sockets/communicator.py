"""The collectives of connected ranks: over sockets, in memory of one host, or both (group.py).

Groups share connections and memory; a rank takes part in the operations of its groups in the order of its calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ddpcheck.seeded_values import Array

from .connections import wire_format
from .connections.deadlock_detector import DeadlockDetector
from .connections.peer import Link, Peer, Traffic
from .group import Group, group_collectives
from .operation_order import OperationOrder, PendingResult
from .rendezvous.host_memory import Hosts
from .shared_memory.collectives import HostMemory, SharedMemoryLink
from .shared_memory.express import express_reductions
from .shared_memory.mapping import MIN_REGION_BYTES

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

_NO_ELEMENTS = np.empty(0, np.float64)


class Communicator:
    """The collectives facet: methods as in ddpcheck.contract.adapter.Collectives. `traffic` counts sent messages and bytes.

    After an error every call raises (operation_order.py).
    """

    def __init__(
        self,
        rank: int,
        world_size: int,
        peers: Mapping[int, Peer],
        traffic: Traffic,
        detector: DeadlockDetector,
        *,
        memory: HostMemory | None = None,
        hosts: Hosts = (),
        algorithm: str = "",
    ) -> None:
        self.rank = rank
        self.world_size = world_size
        self.traffic = traffic
        self._peers = peers
        self._detector = detector
        self._order = OperationOrder(rank, peers)
        self._algorithm = algorithm
        self._memory, self._hosts = memory, hosts
        self._links: dict[int, Link] = dict(peers)
        if memory is not None:
            self._links |= {
                other: SharedMemoryLink(memory.board, channel) for other, channel in memory.board.channels.items()
            }
        self._groups: dict[tuple[int, ...], Group] = {}
        self._world = self._group(range(world_size))
        if memory is not None:
            self._world.express = express_reductions(memory.board, self._world, self._order, algorithm)
        self._sent: dict[int, int] = dict.fromkeys(peers, 0)
        self._received: dict[int, int] = dict.fromkeys(peers, 0)

    @property
    def sends_for_others(self) -> bool:
        """Whether ranks send for others of their host: there are several hosts, and several ranks on one (hierarchical.py)."""
        return len(self._hosts) > 1 and max(map(len, self._hosts)) > 1

    # -------------------------------------------------------------------------------------------------------- the facet

    def all_reduce(self, array: Array, op: str = "sum", *, group: Sequence[int] | None = None) -> Array:
        members = self._world if group is None else self._group(group)
        express = members.express
        if express is not None and array.nbytes <= express.limit:
            result = np.empty(array.shape, array.dtype)
            express.reduce("all_reduce", op, array, array, result)
            return result
        return self._order.run(self._all_reduce, members, members.header("all_reduce", array, op), array, op)

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Sequence[int] | None = None) -> PendingResult:
        """All-reduce in the background, after all earlier operations and before all later ones."""
        members = self._group(group)
        header = members.header("all_reduce", array, op)
        return self._order.run_in_background(self._all_reduce, members, header, array, op)

    def all_reduce_in_place(self, array: Array, op: str = "sum", *, group: Sequence[int] | None = None) -> None:
        """All-reduce into a C-contiguous, writeable array; fastest for arrays made by empty()."""
        flags = array.flags
        if not (flags.carray or (flags.c_contiguous and flags.writeable)):
            raise ValueError("all_reduce_in_place needs an array that is C-contiguous and writeable: pass a copy")
        members = self._world if group is None else self._group(group)
        express = members.express
        if express is not None and array.nbytes <= MIN_REGION_BYTES:
            express.reduce("all_reduce_in_place", op, array, array, array)
            return
        header = members.header("all_reduce_in_place", array, op)
        algorithms = members.algorithms
        if algorithms is not None:
            self._order.run(algorithms.all_reduce_in_place, header, array.reshape(-1), *members.reduction(op))

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Return an array with undefined elements, in memory that the other ranks of this host can map."""
        return np.empty(shape, dtype) if self._memory is None else self._memory.pool.empty(shape, dtype)

    def broadcast(self, array: Array, root: int = 0, *, group: Sequence[int] | None = None) -> Array:
        members = self._group(group)
        if root not in members.ranks:
            raise ValueError(
                f"rank {root} cannot be the root of a broadcast to ranks {members.ranks}: choose one of them"
            )
        header = members.header("broadcast", array, root)
        result = np.array(array, order="C") if root == self.rank else np.empty(array.shape, array.dtype)
        if members.algorithms is not None:
            self._order.run(members.algorithms.broadcast, header, result.reshape(-1), members.ranks.index(root))
        return result

    def all_gather(self, array: Array, *, group: Sequence[int] | None = None) -> Array:
        members = self._group(group)
        header = members.header("all_gather", array)
        result = self.empty((members.size, *array.shape), array.dtype)
        if members.algorithms is None:
            result[0] = array
        else:
            self._order.run(members.algorithms.all_gather, header, array.ravel(), result.reshape(-1))
        return result

    def reduce_scatter(self, array: Array, op: str = "sum", *, group: Sequence[int] | None = None) -> Array:
        members = self._group(group)
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
        self._order.run(algorithms.reduce_scatter, header, array.ravel(), result.reshape(-1), *members.reduction(op))
        return result

    def barrier(self, *, group: Sequence[int] | None = None) -> None:
        members = self._group(group)
        if members.express is not None:
            members.express.reduce("barrier", "sum", _NO_ELEMENTS, _NO_ELEMENTS, _NO_ELEMENTS)
            return
        header = members.header("barrier", _NO_ELEMENTS)
        if members.algorithms is not None:
            self._order.run(members.algorithms.barrier, header)

    def send(self, array: Array, dest: int) -> None:
        link = self._link(dest)
        header = wire_format.pack("send", array, sequence=self._sent[dest])
        self._sent[dest] += 1
        self._order.run(link.send, header, array.ravel())

    def recv(self, array: Array, source: int) -> Array:
        link = self._link(source)
        header = wire_format.pack("send", array, sequence=self._received[source])
        self._received[source] += 1
        result = np.empty(array.shape, array.dtype)
        self._order.run(link.receive, header, result.reshape(-1))
        return result

    def counts(self) -> dict[str, int]:
        """Return bytes (headers included) and messages sent since the start, and the number of collectives begun."""
        traffic = self.traffic
        return {
            "bytes": traffic.payload_bytes + traffic.header_bytes,
            "messages": traffic.messages,
            "collectives": sum(group.begun for group in self._groups.values()),
        }

    def close(self) -> None:
        """Finish pending operations, then close. Sent messages still arrive."""
        self._order.background.stop()
        for peer in self._peers.values():
            peer.close()
        self._detector.close()
        self._world.express = None  # breaks a reference cycle that holds the memory
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.close()

    def _all_reduce(self, members: Group, header: bytes, array: Array, op: str) -> Array:
        if members.algorithms is None:
            return np.array(array, order="C")
        result = self.empty(array.shape, array.dtype)
        members.algorithms.all_reduce(header, array.ravel(), result.reshape(-1), *members.reduction(op))
        return result

    def _group(self, group: Sequence[int] | None) -> Group:
        if group is None:
            return self._world
        ranks = tuple(group)
        found = self._groups.get(ranks)
        if found is None:
            if self.rank not in ranks or list(ranks) != sorted({*ranks} & {*range(self.world_size)}):
                raise ValueError(
                    f"{ranks} is no group for rank {self.rank} of {self.world_size}: name ranks in ascending order, with this one"
                )
            algorithms = group_collectives(ranks, self.rank, self._peers, self._memory, self._hosts, self._algorithm)
            found = self._groups[ranks] = Group(ranks, algorithms)
        return found

    def _link(self, rank: int) -> Link:
        try:
            return self._links[rank]
        except KeyError:
            raise ValueError(
                f"rank {self.rank} cannot exchange with rank {rank}: choose another of {self.world_size}"
            ) from None
