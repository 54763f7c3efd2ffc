"""Collectives that wait too little or too long, that mix things up, and what fails beside them."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from ddpcheck.contract.adapter import Handle
from ddpcheck.values import Array

from ..collectives.collectives import SUM
from ..facets import Group, PassThrough, collectives

ROW = "check_consecutive_collectives_are_independent"
ARGUMENTS = "check_collectives_do_not_change_their_arguments"
BARRIER = "check_barrier_waits_for_every_rank"
DEATH = "check_dead_rank_raises_on_every_other_rank"
FOR_EVER = 3600.0


@collectives("barrier-does-not-block", BARRIER, cause="barrier-does-not-block")
class NoBarrier(PassThrough):
    """A barrier that says that it was there."""

    def barrier(self, *, group: Group = None) -> None:
        pass


@collectives("barrier-by-sleeping", BARRIER, cause="barrier-does-not-block")
class SleepingBarrier(PassThrough):
    """A tenth of a second should do for the others."""

    def barrier(self, *, group: Group = None) -> None:
        time.sleep(0.1)


@collectives("every-128th-barrier-does-not-block", BARRIER, cause="barrier-does-not-block")
class Every128thOpen(PassThrough):
    """Tickets have seven bits, and the last of them is taken for one that was drawn before."""

    tickets = 0

    def barrier(self, *, group: Group = None) -> None:
        self.tickets += 1
        if self.tickets % 128:
            self.comm.barrier(group=group)


@collectives(
    "subgroup-barrier-does-not-block",
    "check_group_barrier_waits_for_its_members",
    seen_in=("pytorch/pytorch#130102",),
    cause="barrier-does-not-block",
    world_size=3,
)
class NoGroupBarrier(PassThrough):
    """Only the barrier of all ranks is one."""

    def barrier(self, *, group: Group = None) -> None:
        if group is None:
            self.comm.barrier()


@collectives(
    "barrier-off-by-one", BARRIER, seen_in=("pytorch/pytorch#138322",), cause="left-collective-early", world_size=3
)
class BarrierOffByOne(PassThrough):
    """Rank 1 calls the barrier once more than the others: it is paired with their next."""

    calls = 0

    def barrier(self, *, group: Group = None) -> None:
        self.calls += 1
        if self.rank == 1 and self.calls == 1:
            self.comm.barrier(group=group)
        self.comm.barrier(group=group)


class _Early:
    def __init__(self, handle: Handle, array: Array) -> None:
        self.array = array.copy()
        threading.Thread(target=self._arrive, args=(handle,), daemon=True).start()

    def _arrive(self, handle: Handle) -> None:
        self.array = handle.wait()

    def wait(self) -> Array:
        time.sleep(0.01)  # in which two ranks that are there are done
        return self.array


@collectives(
    "async-result-read-early",
    "check_wait_returns_after_every_rank_has_contributed",
    seen_in=("OpenNMT/OpenNMT-py#2295", "pytorch/pytorch#37790"),
    cause="not-reduced",
)
class ReadEarly(PassThrough):
    """wait() does not wait: what is there is taken for the result."""

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Handle:
        return _Early(self.comm.all_reduce_async(array, op, group=group), array)


class _Last:
    def __init__(self, waiting: list[Handle]) -> None:
        self.waiting = waiting

    def wait(self) -> Array:
        return self.waiting.pop(0).wait()


@collectives(
    "interleaved-collectives",
    "check_pending_all_reduces_keep_their_own_results",
    seen_in=("horovod/horovod#560",),
    cause="results-mixed-up",
)
class Interleaved(PassThrough):
    """Results carry no tag: whoever waits first gets the first one."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.waiting: list[Handle] = []

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Handle:
        self.waiting.append(self.comm.all_reduce_async(array, op, group=group))
        return _Last(self.waiting)


@collectives("left-over-of-the-larger-one", ROW, cause="results-share-memory")
class LeftOver(PassThrough):
    """A buffer that is kept for the next call is not filled anew where a smaller tensor follows a larger one."""

    kept: Array = np.zeros(0)

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result = super().all_reduce(array, op, group=group)
        stale = self.kept.dtype == array.dtype and self.kept.size > array.size > 0 and op == "sum"
        if stale and array.ndim == 1:
            return self.kept.reshape(-1)[: array.size].copy()
        self.kept = result
        return result


@collectives("argument-changed", ARGUMENTS, seen_in=("Lightning-AI/pytorch-lightning#5759",), cause="works-in-argument")
class ArgumentChanged(PassThrough):
    """The reduction is done in place, on the caller's array."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        array[...] = super().all_reduce(array, op, group=group)
        return array.copy()


@collectives(
    "argument-returned",
    ARGUMENTS,
    seen_in=("learning-at-home/hivemind#450",),
    cause="result-aliases-argument",
    world_size=1,
)
class ArgumentReturned(PassThrough):
    """With one rank there is nothing to do: the argument is the result."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        return array if self.size(group) == 1 else super().all_reduce(array, op, group=group)


@collectives("result-buffer-reused", ARGUMENTS, cause="result-buffer-reused")
class ResultReused(PassThrough):
    """Results are views of one buffer, which the next call fills anew."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.buffer = bytearray(1 << 22)

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        view = np.frombuffer(self.buffer, array.dtype, array.size).reshape(array.shape)
        view[...] = super().all_reduce(array, op, group=group)
        return view


@collectives("hangs", SUM, cause="left-collective-early")
class Hangs(PassThrough):
    """Rank 0 never comes back from the reduction of a scalar."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result = super().all_reduce(array, op, group=group)
        if self.rank == 0 and not array.ndim:
            time.sleep(FOR_EVER)
        return result


@collectives("raises-on-one-rank", SUM, seen_in=("pytorch/pytorch#17113",), cause="rank-raised")
class RaisesOnOneRank(PassThrough):
    """The last rank cannot reduce integers."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if self.rank == self.world - 1 and array.dtype.kind == "i":
            raise TypeError("integers are not supported")
        return super().all_reduce(array, op, group=group)


@collectives(
    "dead-peer-not-detected", DEATH, seen_in=("pytorch/gloo#520", "NVIDIA/TensorRT-LLM#17578"), cause="death-unnoticed"
)
class WaitsForTheDead(PassThrough):
    """A broken connection is tried again, for ever."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        try:
            return super().all_reduce(array, op, group=group)
        except RuntimeError:
            time.sleep(FOR_EVER)
            raise


@collectives(
    "dead-peer-ignored",
    "check_collectives_never_complete_with_a_dead_rank",
    DEATH,
    cause="error-swallowed",
)
class GoesOnAlone(PassThrough):
    """An error of the connection is swallowed, and the rank goes on with its own value."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        try:
            return super().all_reduce(array, op, group=group)
        except RuntimeError:
            return array.copy()
