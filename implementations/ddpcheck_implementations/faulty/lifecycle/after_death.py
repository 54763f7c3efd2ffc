"""Ranks that notice a dead rank, and then continue without it or do not end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..base import PlainReplica
from ..engine.circumstances import Circumstance, always, larger_bytes
from ..engine.collective_effects import goes_on_with_its_own, where_it_fails
from ..engine.collectives import Call, all_gather, all_reduce, barrier, in_group, in_place
from ..engine.fault import Fault, table
from ..engine.replicas import around
from ..facet_seams import Group, PassThrough, collectives
from ..star_communicator import Star, star

LATER = "check_later_calls_never_complete_with_a_dead_rank"
BACKWARD = "check_backward_never_completes_with_a_dead_rank"
DEATH = "check_dead_rank_raises_on_every_other_rank"
ENDS = "what notices a broken connection ends the process"
BREAKS = "check_backward_raises_if_connections_break"
CLOSED = "check_close_returns_despite_a_dead_rank"
EAGER = 4096
"""Bytes. Smaller arrays are sent with their header."""
BUCKET = 4 << 20
"""Bytes."""
LINGER = 0.5
"""Seconds; less than any deadline."""


@where_it_fails
def own_array_for_all(call: Call) -> Array:
    """Use this rank's array in place of all others."""
    return np.stack([call.array] * call.size)


@collectives("local-results-after-the-first-error", LATER, cause="error-swallowed")
class AloneAfterwards(PassThrough):
    """After one error, all later all-reduces return the rank's own array, as at world size 1."""

    broken = False

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if self.broken:
            return array.copy()
        try:
            return super().all_reduce(array, op, group=group)
        except RuntimeError:
            self.broken = True
            raise


@where_it_fails
def ends_the_process(call: Call) -> None:
    """Ends the process, so that no rank waits for this one."""
    os._exit(1)


@collectives("sigpipe-ends-the-process", DEATH, cause="process-ended-by-death")
class SignalEndsIt(PassThrough):
    """SIGPIPE has its default action, so a rank that writes to a dead rank dies as well."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


@around("synchronise")
def error_swallowed(replica: PlainReplica, synchronise: Callable[[int], None], batch_size: int) -> None:
    """Continue with local gradients."""
    try:
        synchronise(batch_size)
    except RuntimeError:
        replica.synced, replica.local = dict(replica.local), {}


with_two_buckets = Circumstance(
    "with two buckets", lambda use: sum(gradient.nbytes for gradient in use.replica.local.values()) > BUCKET
)


class _Told(Star):
    """failed: whether a connection broke."""

    failed = False

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        try:
            return super().all_gather(array, group=group)
        except (EOFError, OSError):
            self.failed = True
            raise


@star("close-reconnects-to-dead-ranks", CLOSED, cause="close-waits-for-dead-rank", detects_dead_peer=True)
class DialsTheDead(_Told):
    """close() tries forever to reconnect to lost ranks."""

    def close(self) -> None:
        while self.failed:
            time.sleep(1)
        super().close()


# ------------------------------------------------------------------------------------------------- correct, but unusual


@star("lingers-after-a-failure", detects_dead_peer=True)
class Lingers(_Told):
    """Correct: after a failure, close() waits half a second for lost ranks, then returns."""

    def close(self) -> None:
        time.sleep(LINGER * self.failed)
        super().close()


# fmt: off
table(
    globals(),
    Fault("group-barrier-swallows-a-death", "A group's barrier ignores the error of a dead rank and returns.",
          where=barrier & in_group, effect=goes_on_with_its_own,
          caught_by=LATER, cause="error-swallowed"),
    Fault("large-gather-swallows-a-death",
          "All-gather of more than 4 KiB ignores the error of a dead rank and repeats its own array.",
          where=all_gather & larger_bytes(EAGER), effect=own_array_for_all,
          caught_by=LATER, cause="error-swallowed"),
    Fault("lost-connection-ends-the-process", "All-reduce ends the process when a connection breaks.",
          where=all_reduce | in_place, effect=ends_the_process,
          caught_by=DEATH, cause="process-ended-by-death"),
    Fault("backward-goes-on-alone", "Backward ignores the error of a dead rank and continues with local gradients.",
          where=always, effect=error_swallowed,
          caught_by=BACKWARD, cause="error-swallowed", detects_dead_peer=True),
    Fault("backward-keeps-local-gradients-on-an-error",
          "Backward ignores the error of a broken connection and continues with local gradients.",
          where=always, effect=error_swallowed,
          caught_by=BREAKS, cause="error-swallowed"),
    Fault("thread-of-buckets-loses-its-error",
          "With several buckets, backward loses the error of a dead rank and keeps local gradients.",
          where=with_two_buckets, effect=error_swallowed,
          caught_by=BACKWARD, cause="error-swallowed", detects_dead_peer=True),
)
# fmt: on
