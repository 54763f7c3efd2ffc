"""Collectives that notice a dead rank, or calls that do not fit, in most ways to communicate, and not in all."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ddpcheck.values import Array

from ..collectives.in_groups import Parted
from ..collectives.memory import Later
from ..collectives.mismatched_calls import ARRAYS, CALLS
from ..facets import Group, PassThrough, collectives
from .timing import DEATH, FOR_EVER

ROOM = 1 << 10
"""Bytes of a message: an array is filled up to a multiple of it."""


@collectives("death-told-to-who-waits-only", DEATH, cause="death-unnoticed")
class ToldOnce(PassThrough):
    """The end of a rank wakes whoever waits for it, as a condition variable does; who comes later waits for the next time."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        began = time.monotonic()
        try:
            return super().all_reduce(array, op, group=group)
        except RuntimeError:
            if time.monotonic() - began < 0.02:
                time.sleep(FOR_EVER)
            raise


@collectives("dead-member-of-a-group-waited-for", DEATH, cause="death-unnoticed-in-group", world_size=3)
class GroupWaits(Parted):
    """In a group a broken connection is tried again."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        try:
            return super().all_reduce(array, op, group=group)
        except RuntimeError:
            if self.part(group):
                time.sleep(FOR_EVER)
            raise


def _filled_up(array: Array) -> Array:
    """Its bytes, as a message has room for them."""
    message = np.zeros(-(-array.nbytes // ROOM) * ROOM, np.uint8)
    message[: array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
    return message.view(np.int32)


def _taken_out(message: Array, like: Array) -> Array:
    return message.view(np.uint8)[: like.nbytes].copy().view(like.dtype).reshape(like.shape)


@collectives(
    "broadcast-in-messages-of-one-size", ARRAYS, cause="messages-unlabelled", world_size=3, detects_mismatch=True
)
class BroadcastFilledUp(PassThrough):
    """Messages of a broadcast are filled up, and every rank takes as much out as it expects."""

    def broadcast(self, array: Array, root: int = 0, *, group: Group = None) -> Array:
        return _taken_out(super().broadcast(_filled_up(array), root, group=group), array)


@collectives(
    "asynchronous-in-messages-of-one-size", ARRAYS, cause="messages-unlabelled", world_size=4, detects_mismatch=True
)
class UnderWayFilledUp(PassThrough):
    """So are those of asynchronous sums, which are gathered."""

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Any:
        if op != "sum":
            return self.comm.all_reduce_async(array, op, group=group)
        rows = [_taken_out(row, array) for row in self.comm.all_gather(_filled_up(array), group=group)]
        return Later(lambda: np.asarray(sum(rows[1:], rows[0])))


@collectives("minimum-and-maximum-look-alike", CALLS, cause="messages-unlabelled", world_size=3, detects_mismatch=True)
class ExtremesAlike(PassThrough):
    """For an extreme all arrays are gathered, and compared at home: no message says which one it is."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if op not in ("min", "max"):
            return super().all_reduce(array, op, group=group)
        rows = self.comm.all_gather(array, group=group)
        return np.asarray(rows.min(axis=0) if op == "min" else rows.max(axis=0))


@collectives(
    "reductions-of-scatters-look-alike",
    CALLS,
    cause="messages-unlabelled",
    world_size=4,
    detects_mismatch=True,
)
class ReductionsOfScattersLookAlike(PassThrough):
    """A reduce-scatter gathers, and every rank reduces as it was told: nobody sees what the others were told."""

    def reduce_scatter(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        rows = self.comm.all_gather(array, group=group)
        ranks = list(range(self.world) if group is None else group)
        folds = {"min": np.minimum, "max": np.maximum, "prod": np.multiply}
        whole = folds.get(op, np.add).reduce(rows, axis=0, dtype=array.dtype)
        whole = (whole / len(ranks)).astype(array.dtype) if op == "mean" else whole
        return np.array(np.split(whole, len(ranks))[ranks.index(self.rank)])
