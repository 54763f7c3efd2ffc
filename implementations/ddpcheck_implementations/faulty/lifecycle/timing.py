"""Collectives that wait too little or too long, or that mix up results."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from ddpcheck.contract.adapter import Handle
from ddpcheck.seeded_values import Array

from ..collectives.collectives import SUM
from ..engine.circumstances import dimensions, on_last_rank, on_rank, signed_integers
from ..engine.collective_effects import giving, goes_on_with_its_own, instead, raises, skipped, where_it_fails
from ..engine.collectives import Call, all_reduce, barrier, group_of, in_group, in_place
from ..engine.fault import Fault, table
from ..facet_seams import Group, PassThrough, collectives

ROW = "check_consecutive_collectives_are_independent"
ARGUMENTS = "check_collectives_do_not_change_their_arguments"
BARRIER = "check_barrier_waits_for_every_rank"
DEATH = "check_dead_rank_raises_on_every_other_rank"
FOR_EVER = 3600.0


@instead
def a_tenth_of_a_second(call: Call) -> None:
    time.sleep(0.1)


@collectives("every-128th-barrier-does-not-block", BARRIER, cause="barrier-does-not-block")
class Every128thOpen(PassThrough):
    """Every 128th barrier returns at once, because calls are numbered in seven bits."""

    tickets = 0

    def barrier(self, *, group: Group = None) -> None:
        self.tickets += 1
        if self.tickets % 128:
            self.comm.barrier(group=group)


@collectives(
    "barrier-off-by-one", BARRIER, seen_in=("pytorch/pytorch#138322",), cause="left-collective-early", world_size=3
)
class BarrierOffByOne(PassThrough):
    """Rank 1 calls one barrier more than the others, which matches their next one."""

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
        time.sleep(0.01)  # enough for two ranks that have both called
        return self.array


@collectives(
    "async-result-read-early",
    "check_wait_returns_after_every_rank_has_contributed",
    seen_in=("OpenNMT/OpenNMT-py#2295", "pytorch/pytorch#37790"),
    cause="wait-returns-early",
)
class ReadEarly(PassThrough):
    """wait() returns the buffer before the result has arrived."""

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
    """Pending results have no number: the first wait() gets the first result, whichever call it belongs to."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.waiting: list[Handle] = []

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Handle:
        self.waiting.append(self.comm.all_reduce_async(array, op, group=group))
        return _Last(self.waiting)


@collectives("left-over-of-the-larger-one", ROW, cause="results-share-memory")
class LeftOver(PassThrough):
    """After a larger array, a smaller one gets old values from the reused buffer."""

    kept: Array = np.zeros(0)

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result = super().all_reduce(array, op, group=group)
        stale = self.kept.dtype == array.dtype and self.kept.size > array.size > 0 and op == "sum"
        if stale and array.ndim == 1:
            return self.kept.reshape(-1)[: array.size].copy()
        self.kept = result
        return result


@giving
def reduced_in_the_argument(call: Call, result: Array) -> Array:
    call.array[...] = result
    return call.array.copy()


@instead
def argument_returned(call: Call) -> Array:
    return call.array


@collectives("result-buffer-reused", ARGUMENTS, cause="result-buffer-reused")
class ResultReused(PassThrough):
    """Results are views of one buffer, which the next call overwrites."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.buffer = bytearray(1 << 22)

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        view = np.frombuffer(self.buffer, array.dtype, array.size).reshape(array.shape)
        view[...] = super().all_reduce(array, op, group=group)
        return view


@giving
def never_comes_back(call: Call, result: Array) -> Array:
    time.sleep(FOR_EVER)
    return result


@where_it_fails
def waits_for_ever(call: Call) -> Array:
    """Retry a broken connection forever."""
    time.sleep(FOR_EVER)
    raise


# fmt: off
table(
    globals(),
    Fault("barrier-does-not-block", "Barrier returns at once.",
          where=barrier, effect=skipped,
          caught_by=BARRIER, cause="barrier-does-not-block"),
    Fault("barrier-by-sleeping", "Barrier sleeps for a tenth of a second instead of waiting for the other ranks.",
          where=barrier, effect=a_tenth_of_a_second,
          caught_by=BARRIER, cause="barrier-does-not-block"),
    Fault("subgroup-barrier-does-not-block", "Barrier in a group returns at once.",
          where=barrier & in_group, effect=skipped,
          caught_by="check_group_barrier_waits_for_its_members", cause="barrier-does-not-block",
          seen_in=("pytorch/pytorch#130102",), world_size=3),
    Fault("argument-changed", "All-reduce writes its result into the argument.",
          where=all_reduce | in_place, effect=reduced_in_the_argument,
          caught_by=ARGUMENTS, cause="works-in-argument", seen_in=("Lightning-AI/pytorch-lightning#5759",)),
    Fault("argument-returned", "All-reduce at size 1 returns its argument instead of a copy.",
          where=(all_reduce | in_place) & group_of(1), effect=argument_returned,
          caught_by=ARGUMENTS, cause="result-aliases-argument", seen_in=("learning-at-home/hivemind#450",),
          world_size=1),
    Fault("scalar-all-reduce-hangs", "All-reduce of an array without dimensions never returns on rank 0.",
          where=(all_reduce | in_place) & dimensions(0) & on_rank(0), effect=never_comes_back,
          caught_by=SUM, cause="left-collective-early"),
    Fault("raises-on-one-rank", "All-reduce of signed integers raises TypeError on the last rank.",
          where=(all_reduce | in_place) & signed_integers & on_last_rank,
          effect=raises(TypeError, "integers are not supported"),
          caught_by=SUM, cause="rank-raised", seen_in=("pytorch/pytorch#17113",)),
    Fault("dead-peer-not-detected", "All-reduce retries a broken connection forever.",
          where=all_reduce | in_place, effect=waits_for_ever,
          caught_by=DEATH, cause="death-unnoticed", seen_in=("pytorch/gloo#520", "NVIDIA/TensorRT-LLM#17578")),
    Fault("dead-peer-ignored", "All-reduce ignores the error of a dead rank and returns the rank's own array.",
          where=all_reduce | in_place, effect=goes_on_with_its_own,
          caught_by=("check_collectives_never_complete_with_a_dead_rank", DEATH), cause="error-swallowed"),
)
# fmt: on
