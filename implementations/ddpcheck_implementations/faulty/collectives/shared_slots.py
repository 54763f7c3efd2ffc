"""A communicator over a file that all ranks of a host map. Each rank writes its slot and reads the other slots."""

from __future__ import annotations

import mmap
import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ddpcheck.contract import TYPICAL
from ddpcheck.contract.adapter import Facets
from ddpcheck.contract.rank_context import RankContext
from ddpcheck.seeded_values import Array

from ..registry import Registering

PROMISED = TYPICAL.of_facets("collectives").but(
    operations=frozenset({"all_gather", "all_reduce", "barrier", "broadcast"}),
    reductions=frozenset({"sum"}),
    gives_back=True,
)
SLOT = 1 << 27
"""Bytes of one slot. A file in /dev/shm uses memory only for written pages."""
HEAD = 4096
PATIENCE = 20.0


class Slots:
    """Correct collectives: ranks wait for each other before they read, and before they write again."""

    def __init__(self, context: RankContext) -> None:
        self.rank, self.world, self.step = context.rank, context.world_size, 0
        path = Path(f"/dev/shm/ddpcheck-slots-{context.master_port}")  # the launcher gives this port to no other world
        opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(opened, HEAD + self.world * SLOT)
        self.memory = mmap.mmap(opened, HEAD + self.world * SLOT)
        os.close(opened)
        self.steps = np.frombuffer(self.memory, np.int64, self.world)
        self.barrier()
        path.unlink(missing_ok=True)

    def barrier(self, *, group: None = None) -> None:
        self.step += 1
        self.steps[self.rank] = self.step
        limit = time.monotonic() + PATIENCE
        while (self.steps < self.step).any():
            time.sleep(0.0001)
            if time.monotonic() > limit:
                raise TimeoutError(f"rank {self.rank} waited for {PATIENCE:g} s for the others")

    def slot(self, rank: int, like: Array) -> Array:
        return np.ndarray(like.shape, like.dtype, self.memory, HEAD + rank * SLOT)

    def all_gather(self, array: Array, *, group: None = None) -> Array:
        self.slot(self.rank, array)[...] = array
        self.barrier()
        self.before_reading()
        rows = np.stack([self.slot(rank, array) for rank in range(self.world)])
        self.after_reading()
        return rows

    def all_reduce(self, array: Array, op: str = "sum", *, group: None = None) -> Array:
        return np.asarray(self.all_gather(array).sum(axis=0, dtype=array.dtype))

    def broadcast(self, array: Array, root: int = 0, *, group: None = None) -> Array:
        return np.array(self.all_gather(array)[root])

    def before_reading(self) -> None:
        """A seam for faults."""

    def after_reading(self) -> None:
        """Wait until all ranks have read."""
        self.barrier()


@dataclass(frozen=True)
class _Connect:
    kind: type[Slots]

    def __call__(self, context: RankContext) -> Facets:
        return Facets(rank=context.rank, world_size=context.world_size, collectives=self.kind(context))


slots: Registering[type[Slots]] = Registering(_Connect, PROMISED)


@slots("slots-in-shared-memory")
class RightSlots(Slots):
    """Correct: ranks read each other's arrays in shared memory."""


@slots("slots-written-before-all-have-read", "check_all_reduce_sums_exactly")
class WrittenBeforeRead(Slots):
    """A rank writes its next array to shared memory while a slower rank still reads the last one.

    A failed Job mostly passes when it runs again, so no cause is certain.
    """

    def before_reading(self) -> None:
        if self.rank == 0:
            time.sleep(0.0005)

    def after_reading(self) -> None:
        """Do not wait for other ranks."""


@slots(
    "result-read-after-it-is-returned",
    "check_all_reduce_sums_exactly",
    cause="result-sent-after-return",
)
class ReadAfterReturn(Slots):
    """Rank 0 reads the total from rank 1's result, as a send does for which rank 1 has not waited."""

    used = 0

    def all_reduce(self, array: Array, op: str = "sum", *, group: None = None) -> Array:
        total = super().all_reduce(array)
        result = self.allocated(array)  # at the same place on all ranks, which make the same calls
        if self.rank == 1:
            result[...] = total
        self.barrier()
        if self.rank:
            return result if self.rank == 1 else total
        limit = time.monotonic() + 0.05  # the caller overwrites it before that
        while time.monotonic() < limit and result.tobytes() == total.tobytes():
            time.sleep(0.0001)
        return result.copy()

    def allocated(self, like: Array) -> Array:
        """New memory in the second half of rank 1's slot, until that is full."""
        begin, self.used = self.used, self.used + -(-like.nbytes // 64) * 64
        if self.used > SLOT // 2:
            begin, self.used = 0, like.nbytes
        return np.ndarray(like.shape, like.dtype, self.memory, HEAD + SLOT + SLOT // 2 + begin)
