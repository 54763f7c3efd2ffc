"""Collectives over one TCP connection to every other rank.

Small arrays go straight from every rank to every other, which takes one message time; large ones go round a ring,
which moves the least bytes (ring.py). Either way every rank combines, or gets, the same numbers in the same order, so
all have the same bits. Groups share the connections; a rank takes part in the operations of its groups in the order
of its calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec, TypeVar

import numpy as np

from ddpcheck.values import Array

from . import ring, wire
from .background import Background, Pending
from .errors import CommunicationError
from .group import Group
from .peer import Peer, Traffic

P = ParamSpec("P")
T = TypeVar("T")

_NO_ELEMENTS = np.empty(0, np.float64)
DIRECT_BYTES = 32 * 1024
"""What a rank may send in all before it receives: it fits the kernel's buffers, so that all may send first."""


class Communicator:
    """The collectives facet; ddpcheck.adapter.Collectives says what each method does. `traffic` counts what was sent.

    After an error it cannot be used any more: ranks would no longer agree on what comes next. It then tells its
    peers, so that they fail at once too, and say which rank to look at.
    """

    def __init__(
        self,
        rank: int,
        world_size: int,
        peers: Mapping[int, Peer],
        traffic: Traffic,
        *,
        direct_bytes: int = DIRECT_BYTES,
    ) -> None:
        self.rank = rank
        self.world_size = world_size
        self.traffic = traffic
        self._peers = peers
        self._direct_bytes = direct_bytes
        self._world = Group(range(world_size), rank, peers)
        self._groups = {self._world.ranks: self._world}
        self._sent: dict[int, int] = dict.fromkeys(peers, 0)
        self._received: dict[int, int] = dict.fromkeys(peers, 0)
        self._background = Background()
        self._failure: BaseException | None = None
        self._culprit = rank

    # -------------------------------------------------------------------------------------------------------- the facet

    def all_reduce(self, array: Array, op: str = "sum", *, group: Sequence[int] | None = None) -> Array:
        members = self._of(group)
        return self._now(self._all_reduce, members, members.header("all_reduce", array, op), array, op)

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Sequence[int] | None = None) -> Pending:
        """In the background, after all that was called before; what is called later waits for it."""
        members = self._of(group)
        header = members.header("all_reduce", array, op)
        return self._background.submit(lambda: self._guarded(self._all_reduce, members, header, array, op))

    def broadcast(self, array: Array, root: int = 0, *, group: Sequence[int] | None = None) -> Array:
        members = self._of(group)
        if root not in members.ranks:
            raise ValueError(
                f"rank {root} cannot be the root of a broadcast to ranks {members.ranks}: choose one of them"
            )
        return self._now(self._broadcast, members, members.header("broadcast", array, root), array, root)

    def all_gather(self, array: Array, *, group: Sequence[int] | None = None) -> Array:
        members = self._of(group)
        return self._now(self._all_gather, members, members.header("all_gather", array), array)

    def reduce_scatter(self, array: Array, op: str = "sum", *, group: Sequence[int] | None = None) -> Array:
        members = self._of(group)
        if not array.ndim or array.shape[0] % members.size:
            raise ValueError(
                f"reduce_scatter over {members.size} ranks cannot share out the rows of shape {array.shape}"
            )
        return self._now(self._reduce_scatter, members, members.header("reduce_scatter", array, op), array, op)

    def barrier(self, *, group: Sequence[int] | None = None) -> None:
        members = self._of(group)
        self._now(self._barrier, members, members.header("barrier", _NO_ELEMENTS))

    def send(self, array: Array, dest: int) -> None:
        peer = self._peer(dest)
        header = wire.pack("send", array, sequence=self._sent[dest])
        self._sent[dest] += 1
        self._now(peer.send, header, array.ravel())

    def recv(self, array: Array, source: int) -> Array:
        peer = self._peer(source)
        header = wire.pack("send", array, sequence=self._received[source])
        self._received[source] += 1
        result = np.empty(array.shape, array.dtype)
        self._now(peer.receive, header, result.reshape(-1))
        return result

    def close(self) -> None:
        """End in order: operations under way are finished first, and what was sent still arrives."""
        self._background.stop()
        for peer in self._peers.values():
            peer.close()

    # ----------------------------------------------------------------------------------------------------- algorithms

    def _all_reduce(self, members: Group, header: bytes, array: Array, op: str) -> Array:
        reduction = wire.REDUCTIONS[op]
        flat = array.ravel()
        if members.size == 1:
            result = flat.copy()
        elif self._is_small(members, flat):
            first, second, *others = members.exchange(header, flat)
            result = reduction(first, second)
            for other in others:
                reduction(result, other, out=result)
        else:
            result = ring.all_reduce(members.ring(), header, flat, reduction)
        return _finished(result, op, members.size).reshape(array.shape)

    def _all_gather(self, members: Group, header: bytes, array: Array) -> Array:
        flat = array.ravel()
        if members.size == 1 or self._is_small(members, flat):
            result = np.concatenate(members.exchange(header, flat))
        else:
            result = ring.all_gather(members.ring(), header, flat)
        return result.reshape(members.size, *array.shape)

    def _reduce_scatter(self, members: Group, header: bytes, array: Array, op: str) -> Array:
        result = array.ravel()
        if members.size > 1:
            result = ring.reduce_scatter(members.ring(), header, result, wire.REDUCTIONS[op])
        shape = (array.shape[0] // members.size, *array.shape[1:])
        return _finished(result.copy(), op, members.size).reshape(shape)

    def _broadcast(self, members: Group, header: bytes, array: Array, root: int) -> Array:
        """Down a binomial tree. Counted from the root, a rank's parent is its number without the lowest bit that is set."""
        place = (members.position - members.ranks.index(root)) % members.size
        lowest = place & -place or 1 << (members.size - 1).bit_length()
        result = np.array(array, order="C") if not place else np.empty(array.shape, array.dtype)
        if place:
            members.neighbour(-lowest).receive(header, result.reshape(-1))
        while lowest > 1:
            lowest >>= 1
            if place + lowest < members.size:
                members.neighbour(lowest).send(header, result.reshape(-1))
        return result

    def _barrier(self, members: Group, header: bytes) -> None:
        """Dissemination: in round k tell the one 2^k further on. After log2 W rounds everyone has heard of everyone."""
        distance = 1
        while distance < members.size:
            members.neighbour(distance).send(header)
            members.neighbour(-distance).receive(header)
            distance *= 2

    def _is_small(self, members: Group, flat: Array) -> bool:
        return flat.nbytes * (members.size - 1) <= self._direct_bytes

    # ------------------------------------------------------------------------------------------------ order and failure

    def _now(self, operation: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self._background.drain()
        return self._guarded(operation, *args, **kwargs)

    def _guarded(self, operation: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._failure is not None:
            raise CommunicationError(
                self._culprit, f"this communicator failed before: {self._failure}; start the ranks again"
            ) from self._failure
        try:
            return operation(*args, **kwargs)
        except BaseException as error:
            self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        """Whatever interrupted an operation, the streams are out of step now: end them, so that nobody waits for us."""
        self._failure = error
        if isinstance(error, CommunicationError):
            self._culprit = error.culprit
            gone = [str(rank) for rank, peer in self._peers.items() if rank != error.culprit and peer.gone()]
            if gone:
                error.add_note(f"gone as well: rank {', '.join(gone)}")
        for peer in self._peers.values():
            peer.abandon(self._culprit)

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
            known = self._groups[ranks] = Group(ranks, self.rank, self._peers)
        return known

    def _peer(self, rank: int) -> Peer:
        try:
            return self._peers[rank]
        except KeyError:
            raise ValueError(
                f"rank {self.rank} cannot exchange with rank {rank}: choose another of {self.world_size}"
            ) from None


def _finished(result: Array, op: str, size: int) -> Array:
    if op == "mean":
        result /= size
    return result
