"""What survivors do wrong once they have noticed a dead rank: they go on without it, or cannot end."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np

from ddpcheck.values import Array

from ..base import PlainReplica, fault
from ..facets import Group, PassThrough, collectives
from ..star import Star, star

LATER = "check_later_calls_never_complete_with_a_dead_rank"
BACKWARD = "check_backward_never_completes_with_a_dead_rank"
DEATH = "check_dead_rank_raises_on_every_other_rank"
ENDS = "what notices a broken connection ends the process"
CLOSED = "check_close_returns_despite_a_dead_rank"
EAGER = 4096
"""Bytes of an array that goes along with its header."""
BUCKET = 4 << 20
"""Bytes."""
LINGER = 0.5
"""Seconds, less than any deadline."""


@collectives("group-barrier-swallows-a-death", LATER, cause="error-swallowed")
class GroupBarrierSwallows(PassThrough):
    """A barrier of a group is left, however it ended."""

    def barrier(self, *, group: Group = None) -> None:
        try:
            self.comm.barrier(group=group)
        except RuntimeError:
            if group is None:
                raise


@collectives("large-gather-swallows-a-death", LATER, cause="error-swallowed")
class LargeGatherSwallows(PassThrough):
    """Who sends nothing of a large array is taken to have sent one's own."""

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        try:
            return np.asarray(self.comm.all_gather(array, group=group))
        except RuntimeError:
            if array.nbytes <= EAGER:
                raise
            return np.stack([array] * self.size(group))


@collectives("alone-after-the-first-error", LATER, cause="error-swallowed")
class AloneAfterwards(PassThrough):
    """The error is raised once; the communicator that is broken then counts as one of a single rank."""

    broken = False

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if self.broken:
            return array.copy()
        try:
            return super().all_reduce(array, op, group=group)
        except RuntimeError:
            self.broken = True
            raise


@collectives("connection-lost-is-the-end", DEATH, cause="process-ended-by-death")
class LostIsTheEnd(PassThrough):
    """Who hears that a connection is broken ends the process, so that nobody waits for it."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        try:
            return super().all_reduce(array, op, group=group)
        except RuntimeError:
            os._exit(1)


@collectives("signal-of-broken-pipes-ends-it", DEATH, cause="process-ended-by-death")
class SignalEndsIt(PassThrough):
    """SIGPIPE does what it does in C: whoever writes to a rank that is gone is gone, too."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


@fault("backward-goes-on-alone", BACKWARD, cause="error-swallowed", detects_dead_peer=True)
class BackwardGoesOnAlone(PlainReplica):
    """A reduction that fails is logged, and training goes on with local gradients."""

    def synchronise(self, batch_size: int) -> None:
        try:
            super().synchronise(batch_size)
        except RuntimeError:
            self.synced, self.local = dict(self.local), {}


@fault("thread-of-buckets-loses-its-error", BACKWARD, cause="error-swallowed", detects_dead_peer=True)
class ThreadLosesItsError(PlainReplica):
    """A second bucket is reduced on a thread, whose exception nobody reads."""

    def synchronise(self, batch_size: int) -> None:
        try:
            super().synchronise(batch_size)
        except RuntimeError:
            if sum(gradient.nbytes for gradient in self.local.values()) <= BUCKET:
                raise
            self.synced, self.local = dict(self.local), {}


class _Told(Star):
    """It remembers that it failed."""

    failed = False

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        try:
            return super().all_gather(array, group=group)
        except (EOFError, OSError):
            self.failed = True
            raise


@star("close-dials-the-dead", CLOSED, cause="close-waits-for-dead-rank", detects_dead_peer=True)
class DialsTheDead(_Told):
    """What was lost is connected again, to say farewell, for as long as that takes."""

    def close(self) -> None:
        while self.failed:
            time.sleep(1)
        super().close()


# ------------------------------------------------------------------------------------------------- correct, but unusual


@star("lingers-after-a-failure", detects_dead_peer=True)
class Lingers(_Told):
    """close() waits a few seconds for peers that may come back, and then ends."""

    def close(self) -> None:
        time.sleep(LINGER * self.failed)
        super().close()
