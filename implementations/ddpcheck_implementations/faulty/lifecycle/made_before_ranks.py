"""Implementations that make objects at import, which forked ranks share and spawned ranks lack.

Each is right if every rank is a separately started process.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ddpcheck.contract.adapter import Adapter, Facets
from ddpcheck.contract.rank_context import RankContext
from ddpcheck.launchers.multiprocess import Method, Multiprocessing
from ddpcheck.seeded_values import Array

from ..base import PlainReplica, fault
from ..facet_seams import PROMISED, Group, PassThrough, PlainSampler, PlainStreams, collectives, sampler, streams
from ..registry import Connect, Registering, connecting

ALL_GATHER = "check_all_gather_stacks_in_rank_order"
BARRIER = "check_barrier_waits_for_every_rank"
EACH_ONCE = "check_shards_are_disjoint_and_complete"
MEAN = "check_all_reduce_gives_the_exact_mean"
OWN = "check_random_numbers_differ_by_seed_epoch_and_rank"
START = "check_ranks_start"
_HELD = f"{__package__}.at_import.made_at_import"


def _held() -> ModuleType:
    """The module as this rank has it: imported, or inherited from the parent."""
    from .at_import import made_at_import

    return made_at_import


def _started(
    method: Method, facet: Registering[Any], name: str, *caught_by: str, **about: Any
) -> Callable[[Any], Adapter]:
    """Register an implementation with ranks started by this method."""
    return facet(name, *caught_by, launcher=Multiprocessing(method), requires=(_HELD,), **about)


@_started("fork", streams, "forked-random-state", OWN, seen_in=("pytorch/pytorch#5059",), cause="rank-not-in-seed")
class SaltDrawnAtImport(PlainStreams):
    """A salt drawn at import separates the ranks' random streams, but forked ranks share it."""

    def key(self) -> Sequence[int]:
        return (self.seed, self.epoch, _held().NUMBER)


@_started("fork", sampler, "rank-read-at-import", EACH_ONCE, cause="same-share-on-every-rank")
class RankReadAtImport(PlainSampler):
    """The rank is read at import, before it is set, so every forked rank takes itself for rank 0."""

    def share(self, order: Array) -> Array:
        return order[_held().RANK :: self.world]


@_started("spawn", sampler, "rank-read-at-import-when-spawned", EACH_ONCE, cause="same-share-on-every-rank")
class RankReadAtImportOfEach(PlainSampler):
    """A spawned rank reads its rank at import, before it is set, and takes itself for rank 0."""

    def share(self, order: Array) -> Array:
        return order[_held().RANK :: self.world]


@_started("fork", collectives, "file-named-at-import", ALL_GATHER, cause="one-row-for-all")
class FileNamedAtImport(PassThrough):
    """Files are named by the process number at import, so forked ranks write to one file."""

    calls = 0

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        self.calls += 1
        pids = self.comm.all_gather(np.array(_held().PID), group=group)
        own, *others = (_file(int(pid), self.calls) for pid in (_held().PID, *pids))
        own.write_bytes(array.tobytes())
        self.comm.barrier(group=group)
        rows = [np.frombuffer(file.read_bytes(), array.dtype).reshape(array.shape) for file in others]
        self.comm.barrier(group=group)
        own.unlink(missing_ok=True)
        return np.stack(rows)


def _file(pid: int, call: int) -> Path:
    return Path(tempfile.gettempdir(), f"gathered-{pid}-{call}")


class Mailboxes(PassThrough):
    """A barrier of datagrams: the first rank waits for a message of each other rank, and then answers all."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.box = self.mine()
        name = np.frombuffer(self.box.getsockname().ljust(64, b"\0"), np.uint8).astype(np.int64)
        self.names = [bytes(row.astype(np.uint8)).rstrip(b"\0") for row in comm.all_gather(name)]

    def mine(self) -> socket.socket:
        made: socket.socket = _held().MAILBOX
        return made

    def barrier(self, *, group: Group = None) -> None:
        first, *others = range(self.world) if group is None else group
        if self.rank == first:
            for _ in others:
                self.box.recv(1)
            for rank in others:
                self.box.sendto(b"!", self.names[rank])
        else:
            self.box.sendto(b"?", self.names[first])
            self.box.recv(1)


@_started(
    "fork",
    collectives,
    "socket-opened-at-import",
    BARRIER,
    subgroups=False,
)
class MailboxOpenedAtImport(Mailboxes):
    """A socket is opened at import, so forked ranks share it and receive each other's messages.

    Ranks race for messages, so there is no single cause: a rank hangs, or a barrier does not block.
    """


@_started("fork", collectives, "socket-opened-after-fork", subgroups=False)
class MailboxOpenedAfterFork(Mailboxes):
    """Correct: a forked process opens a socket of its own."""

    def mine(self) -> socket.socket:
        made: socket.socket = _held().mailbox() if os.getpid() != _held().PID else super().mine()
        return made


@_started("fork", collectives, "threads-started-at-import", ALL_GATHER, cause="all-wait-in-one-operation")
class ThreadsStartedAtImport(PassThrough):
    """A thread pool is started at import; forked ranks inherit it without its threads and wait forever."""

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        return np.asarray(_held().POOL.submit(self.comm.all_gather, array, group=group).result())


@_started("spawn", collectives, "set-up-in-the-parent", MEAN, cause="summed-not-averaged")
class SetUpInTheParent(PassThrough):
    """Means are set up under `if __name__ == "__main__"`, which spawned ranks skip, so they sum."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        return super().all_reduce(array, op if op != "mean" or _held().IN_MAIN_PROCESS else "sum", group=group)


@fault(
    "set-order-of-spawned-ranks",
    "check_many_small_tensors_are_trained_exactly",
    seen_in=("NVIDIA/nvalchemi-toolkit#143",),
    cause="rank-sends-other-parameter",
    launcher=Multiprocessing("spawn"),
)
class SetOrderOfSpawned(PlainReplica):
    """Gradients are reduced in the order of a set of names, which differs between spawned ranks."""

    between_processes = True

    def used_somewhere(self) -> list[str]:
        return list(set(super().used_somewhere()))


def _does_not_start(method: Method, name: str, module: str, *, cause: str) -> Callable[[Connect], Adapter]:
    """Register a connect() that fails if the parent of the ranks has imported this module."""
    registering = connecting(PROMISED.of_facets("collectives"))
    return registering(name, START, cause=cause, launcher=Multiprocessing(method), requires=(module,))


@_does_not_start("fork", "connect-reports-rank-of-import", _HELD, cause="rank-read-at-import")
def tells_the_rank_of_its_import(context: RankContext) -> Facets:
    """connect() reports the rank that was read at import, so every forked rank is rank 0."""
    from ...numpy_sockets import connect

    return replace(connect(context), rank=_held().RANK)


@_does_not_start("spawn", "port-taken-at-import", f"{__package__}.at_import.listening", cause="port-taken-by-parent")
def port_taken_at_import(context: RankContext) -> Facets:
    """A port is opened at import; the parent holds it, so spawned ranks cannot import the module."""
    from ...numpy_sockets import connect
    from .at_import import listening

    return replace(connect(context), close=listening.SERVER.close)


@_started("spawn", streams, "objects-cannot-be-pickled")
class CannotBePickled(PlainStreams):
    """Correct: objects cannot be pickled, and ranks import their adapter instead."""

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle a generator that is in use")
