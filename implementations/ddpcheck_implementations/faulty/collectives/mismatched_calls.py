"""Collectives that do not notice mismatched calls, or a failed rank."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.circumstances import Circumstance
from ..engine.collective_effects import instead, mean_divided_by
from ..engine.collectives import Call, all_reduce, asynchronous, broadcast, in_group, op
from ..engine.fault import Fault, table
from ..facet_seams import Group, PassThrough, collectives
from .memory import Later

ARRAYS = "check_mismatched_arrays_raise_on_every_rank"
CALLS = "check_mismatched_calls_raise_on_every_rank"
WAYS = "check_asynchronous_or_group_mismatches_raise_on_every_rank"
LATE = "check_late_ranks_do_not_change_results"
EXCEPTION = "check_failed_rank_raises_on_every_other_rank"
FOR_EVER = 3600.0


whole_words = Circumstance("a multiple of 4 bytes", lambda call: call.array.nbytes % 4 == 0)
divided_by_each_rank = mean_divided_by(lambda call: call.size)


@instead
def bytes_added_as_own_dtype(call: Call) -> Array:
    """If dtypes differ, one rank reads float64 bytes as float32."""
    array = call.array
    rows = call.comm.all_gather(array.ravel().view(np.int32), group=call.group)
    return np.asarray(sum(row.view(array.dtype) for row in rows)).astype(array.dtype).reshape(array.shape)


@instead
def row_of_own_root(call: Call) -> Array:
    """The group gathers all arrays, so no rank learns the others' roots."""
    assert call.root is not None
    return np.array(call.gathered()[call.ranks.index(call.root)])


@collectives(
    "collective-kind-mismatch",
    CALLS,
    seen_in=("pytorch/pytorch#72843", "pytorch/pytorch#79901"),
    cause="messages-unlabelled",
    detects_mismatch=True,
)
class KindsAlike(PassThrough):
    """All-reduce and broadcast send equal messages, so a rank that calls the other one is not noticed."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if op != "sum":
            return super().all_reduce(array, op, group=group)
        return np.asarray(sum(self.comm.all_gather(array, group=group))).astype(array.dtype)

    def broadcast(self, array: Array, root: int = 0, *, group: Group = None) -> Array:
        place = root if group is None else list(group).index(root)
        return np.asarray(self.comm.all_gather(array, group=group)[place])


@collectives("messages-without-dtype", ARRAYS, detects_mismatch=True)
class MessagesWithoutDtype(PassThrough):
    """Messages between two ranks carry no dtype or shape, so mismatches are not noticed."""

    def send(self, array: Array, dest: int) -> None:
        self.comm.send(array.ravel().view(np.int32) if array.nbytes % 4 == 0 else array, dest)

    def recv(self, array: Array, source: int) -> Array:
        if array.nbytes % 4:
            return np.asarray(self.comm.recv(array, source))
        got = self.comm.recv(np.empty(array.nbytes // 4, np.int32), source)
        return np.asarray(got.view(array.dtype).reshape(array.shape))


@collectives(
    "exception-leaves-others-hanging",
    EXCEPTION,
    seen_in=("pytorch/pytorch#17113", "dmlc/xgboost#11217"),
    cause="process-kept-alive",
    detects_failed_peer=True,
)
class StaysAfterException(PassThrough):
    """A heartbeat thread keeps a failed rank's process and connections alive, so other ranks hang."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        threading.Thread(target=time.sleep, args=(FOR_EVER,), daemon=False).start()


@collectives(
    "thread-from-the-first-asynchronous-call",
    EXCEPTION,
    cause="process-kept-alive",
    detects_failed_peer=True,
    asynchronous=True,
)
class StaysAfterAsynchronousCall(PassThrough):
    """The first asynchronous call starts a thread that keeps a failed rank's process alive."""

    started = False

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Any:
        if not self.started:
            threading.Thread(target=time.sleep, args=(FOR_EVER,), daemon=False).start()
        self.started = True
        return self.comm.all_reduce_async(array, op, group=group)


@collectives("local-retry-decision", LATE, seen_in=("InternLM/xtuner#1852",), cause="other-message-received")
class TriesAgainAlone(PassThrough):
    """A rank that has waited for 10 ms restarts the all-reduce without telling the others."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        handle = self.comm.all_reduce_async(array, op, group=group)
        waiting = threading.Thread(target=handle.wait, daemon=True)
        waiting.start()
        waiting.join(0.01)
        return super().all_reduce(array, op, group=group) if waiting.is_alive() else handle.wait()


@collectives(
    "matched-by-buffer-size",
    WAYS,
    cause="messages-unlabelled",
    world_size=3,
    detects_mismatch=True,
)
class MatchedByRoom(PassThrough):
    """Pending calls are matched by buffer size and order, so ranks in another order add other arrays."""

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Any:
        room = -(-array.size // 64) * 64
        if op != "sum":
            return self.comm.all_reduce_async(array, op, group=group)
        buffer = np.zeros(room, array.dtype)
        buffer[: array.size] = array.ravel()
        handle = self.comm.all_reduce_async(buffer, op, group=group)
        return Later(lambda: np.asarray(handle.wait())[: array.size].reshape(array.shape).copy())


# fmt: off
table(
    globals(),
    Fault("dtype-mismatch-accepted",
          "All-reduce adds the bytes of other ranks in its own dtype, so a dtype mismatch is not noticed.",
          where=all_reduce & op("sum") & whole_words, effect=bytes_added_as_own_dtype,
          caught_by=ARRAYS, cause="messages-unlabelled", seen_in=("pytorch/pytorch#58224",),
          detects_mismatch=True),
    Fault("mean-and-sum-look-alike",
          "Mean and sum send equal messages, so a rank that asks for the other one is not noticed.",
          where=all_reduce & op("mean"), effect=divided_by_each_rank,
          caught_by=CALLS, cause="messages-unlabelled", world_size=3, detects_mismatch=True),
    Fault("means-under-way-are-sums", "Asynchronous mean and sum send equal messages, so a mismatch is not noticed.",
          where=asynchronous & op("mean"), effect=divided_by_each_rank,
          caught_by=WAYS, cause="messages-unlabelled", detects_mismatch=True),
    Fault("means-in-groups-are-sums", "Mean and sum in a group send equal messages, so a mismatch is not noticed.",
          where=all_reduce & op("mean") & in_group, effect=divided_by_each_rank,
          caught_by=WAYS, cause="messages-unlabelled", detects_mismatch=True),
    Fault("roots-in-groups-look-alike",
          "Broadcast in a group gathers all arrays, so ranks that name different roots are not noticed.",
          where=broadcast & in_group, effect=row_of_own_root,
          caught_by=WAYS, cause="messages-unlabelled", world_size=4, detects_mismatch=True),
)
# fmt: on
