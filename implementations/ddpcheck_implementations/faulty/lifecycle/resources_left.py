"""Implementations with right results that leave a setting, thread, descriptor or array behind."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
import time
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.collective_effects import doing
from ..engine.collectives import Call, all_gather, all_reduce, asynchronous, barrier, broadcast, in_group, in_place, op
from ..engine.fault import Fault, table
from ..facet_seams import Group, PassThrough, PlainSampler, PlainStreams, collectives, metrics, sampler, streams
from ..star_communicator import Star, exactly, star

USED = "check_collectives_leave_process_state_unchanged"
CLOSED = "check_close_returns_on_every_rank"
GAVE_BACK = "check_close_releases_process_resources"


@doing
def errors_of_numpy_ignored(call: Call) -> None:
    np.seterr(all="ignore")


@doing
def warnings_ignored(call: Call) -> None:
    warnings.simplefilter("ignore")


@doing
def interrupts_ignored(call: Call) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@doing
def threads_of_other_libraries_limited(call: Call) -> None:
    os.environ["OMP_NUM_THREADS"] = "7"


@doing
def timeout_of_all_sockets_set(call: Call) -> None:
    socket.setdefaulttimeout(30.0)


@collectives("buffers-made-call-by-call", seen_in=("pytorch/pytorch (ProcessGroupGloo in torch 2.13)",))
class BuffersMadeCallByCall(PassThrough):
    """Correct: each of the first ten calls allocates a buffer, and later calls allocate none."""

    wanted = 10

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        kept = vars(self).setdefault("kept", [])
        if len(kept) < self.wanted:
            kept.append(np.ones(64_000, np.uint8))
        return np.asarray(self.comm.all_gather(array, group=group))


@doing
def tag_drawn(call: Call) -> None:
    """Draw a tag from NumPy's global generator."""
    np.random.random()


@doing
def thread_begun(call: Call) -> None:
    """Start a thread that waits forever."""
    threading.Thread(target=threading.Event().wait, daemon=True).start()


@doing
def descriptor_opened(call: Call) -> None:
    """Open a descriptor that is never closed."""
    os.dup(1)


@collectives("buffer-for-each-broadcast-in-a-group", USED, cause="memory-grows")
class BufferForEachBroadcast(PassThrough):
    """Every broadcast in a group allocates a buffer and keeps it forever."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.buffers: list[Array] = []

    def broadcast(self, array: Array, root: int = 0, *, group: Group = None) -> Array:
        if group is not None:
            self.buffers.append(np.array(array))
        return super().broadcast(array, root, group=group)


@collectives("results-kept", USED, cause="memory-grows")
class ResultsKept(PassThrough):
    """Every all-gather result is kept forever."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.log: list[Array] = []

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        self.log.append(self.comm.all_gather(array, group=group))
        return self.log[-1].copy()


@collectives("thread-after-close", CLOSED, cause="process-kept-alive")
class ThreadAfterClose(PassThrough):
    """The first all-reduce starts a non-daemon thread, which keeps the process alive after close()."""

    beating = False

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if not self.beating:
            threading.Thread(target=threading.Event().wait).start()
        self.beating = True
        return super().all_reduce(array, op, group=group)


@collectives("pipe-after-close", GAVE_BACK, cause="left-open-after-close", gives_back=True)
class PipeAfterClose(PassThrough):
    """close() leaves a pipe open."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.pipe = os.pipe()


@collectives("message-lost-by-close", CLOSED, cause="sent-data-lost-by-close")
class LostByClose(PassThrough):
    """close() does not wait for the thread that sends messages, so the last ones are lost."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.sender = ThreadPoolExecutor(1)

    def send(self, array: Array, dest: int) -> None:
        self.sender.submit(self.send_late, array.copy(), dest)

    def send_late(self, array: Array, dest: int) -> None:
        time.sleep(0.3)
        self.comm.send(array, dest)


@collectives(
    "connections-of-groups-after-close",
    GAVE_BACK,
    cause="left-open-after-close",
    gives_back=True,
)
class GroupsAfterClose(PassThrough):
    """close() leaves the connections of groups open."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.pairs: dict[tuple[int, ...], Any] = {}

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if self.size(group) > 1 and group is not None:
            self.pairs.setdefault(tuple(group), socket.socketpair())
        return super().all_reduce(array, op, group=group)


@sampler(
    "seeds-the-global-generator", "check_samplers_leave_process_state_unchanged", cause="process-generator-changed"
)
class SeedsTheGlobalGenerator(PlainSampler):
    """The sampler seeds NumPy's global generator with seed and epoch."""

    def order(self) -> Array:
        if not self.shuffle:
            return super().order()
        np.random.seed((7919 * self.seed + 104729 * self.epoch) % (1 << 32))
        return np.random.permutation(self.length)


@streams(
    "streams-of-the-global-generator",
    "check_random_streams_leave_process_state_unchanged",
    cause="process-generator-changed",
)
class StreamsOfTheProcess(PlainStreams):
    """set_epoch() seeds Python's global generator."""

    def set_epoch(self, epoch: int) -> None:
        random.seed(f"{self.seed}/{epoch}/{self.rank}")
        super().set_epoch(epoch)


@metrics("folder-changed-for-a-log", "check_metrics_leave_process_state_unchanged", cause="process-setting-changed")
def in_the_folder_of_logs(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Aggregating metrics changes the process's working folder."""
    os.chdir("/")
    sums = comm.all_reduce(np.array([*(value * count if count else 0.0 for value in metrics.values()), count]))
    return {name: float(total / sums[-1]) for name, total in zip(metrics, sums, strict=False)} if sums[-1] else {}


@star("close-waits-for-ever", CLOSED, cause="close-waits")
class CloseWaits(Star):
    """close() waits for a message that no rank sends."""

    def close(self) -> None:
        for link in self.links.values():
            exactly(link, 1)
        super().close()


# fmt: off
table(
    globals(),
    Fault("errors-of-numpy-switched-off", "All-reduce turns off NumPy's floating-point warnings in the whole process.",
          where=all_reduce | in_place, effect=errors_of_numpy_ignored,
          caught_by=USED, cause="process-setting-changed"),
    Fault("warnings-switched-off", "A mean turns off warnings in the whole process.",
          where=(all_reduce | in_place) & op("mean"), effect=warnings_ignored,
          caught_by=USED, cause="process-setting-changed"),
    Fault("interrupts-ignored", "Barrier makes the process ignore SIGINT.",
          where=barrier, effect=interrupts_ignored,
          caught_by=USED, cause="process-setting-changed"),
    Fault("environment-changed", "All-gather sets OMP_NUM_THREADS in the process's environment.",
          where=all_gather, effect=threads_of_other_libraries_limited,
          caught_by=USED, cause="process-setting-changed"),
    Fault("timeout-of-all-sockets", "Broadcast sets the default timeout of all sockets in the process.",
          where=broadcast, effect=timeout_of_all_sockets_set,
          caught_by=USED, cause="process-setting-changed"),
    Fault("tags-from-the-global-generator", "All-reduce draws a number from NumPy's global generator.",
          where=all_reduce | in_place, effect=tag_drawn,
          caught_by=USED, cause="process-generator-changed"),
    Fault("thread-for-each-call", "Each asynchronous all-reduce starts a thread that never ends.",
          where=asynchronous, effect=thread_begun,
          caught_by=USED, cause="resource-left-by-each-call"),
    Fault("descriptor-for-each-group", "Each all-reduce in a group opens a descriptor that is never closed.",
          where=(all_reduce | in_place) & in_group, effect=descriptor_opened,
          caught_by=USED, cause="resource-left-by-each-call"),
)
# fmt: on
