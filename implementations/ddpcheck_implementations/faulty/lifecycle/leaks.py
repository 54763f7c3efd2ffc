"""Right results, and a setting of the process that few look at is changed, or small objects are kept."""

from __future__ import annotations

import builtins
import logging
import os
import resource
import signal
import sys
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from ddpcheck.values import Array

from ..facets import Group, PassThrough, PlainSampler, PlainStreams, collectives, metrics, sampler, streams
from ..metrics.metrics import right_means
from .leaving import USED


@collectives("permissions-of-new-files", USED, cause="process-setting-changed")
class Umask(PassThrough):
    """A file is made for others to read, and so are all files from then on."""

    def broadcast(self, array: Array, root: int = 0, *, group: Group = None) -> Array:
        os.umask(0o000)
        return super().broadcast(array, root, group=group)


@collectives("logging-switched-off", USED, cause="process-setting-changed")
class Silenced(PassThrough):
    """Only errors are logged from the first gather on, those of the program too."""

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        logging.getLogger().setLevel(logging.ERROR)
        return np.asarray(self.comm.all_gather(array, group=group))


@collectives(
    "output-of-rank-0-only",
    USED,
    seen_in=("facebookresearch/detr (util/misc.py)",),
    cause="process-setting-changed",
)
class RankZeroPrints(PassThrough):
    """Only rank 0 may print."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if self.rank:
            sys.stdout = None  # print() does nothing then
        return super().all_reduce(array, op, group=group)


@collectives(
    "print-of-others-replaced", USED, seen_in=("facebookresearch/detr (util/misc.py)",), cause="process-setting-changed"
)
class PrintReplaced(PassThrough):
    """print() is one that says nothing, on all ranks but the first."""

    def barrier(self, *, group: Group = None) -> None:
        builtins.print = lambda *_, **__: None
        self.comm.barrier(group=group)


@collectives("digits-for-the-log", USED, cause="process-setting-changed")
class DigitsForTheLog(PassThrough):
    """Three digits are enough for a log of what was gathered."""

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        np.set_printoptions(precision=3)
        return np.asarray(self.comm.all_gather(array, group=group))


@collectives("limit-of-descriptors-lowered", USED, cause="process-setting-changed")
class LimitLowered(PassThrough):
    """The descriptor that it takes is taken off what the program may have."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, most))
        return super().all_reduce(array, op, group=group)


@collectives("alarm-left-set", USED, cause="process-setting-changed")
class AlarmLeftSet(PassThrough):
    """A time limit by SIGALRM, which is not taken back."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        signal.setitimer(signal.ITIMER_REAL, 3600)
        return super().all_reduce(array, op, group=group)


@sampler("orders-kept", "check_samplers_leave_process_state_unchanged", cause="memory-grows")
class OrdersKept(PlainSampler):
    """Orders are kept by epoch, in case that it comes again, and by sampler, which does not."""

    kept: dict[int, Array] = {}  # noqa: RUF012  # that it is the class's is the fault

    def order(self) -> Array:
        return self.kept.setdefault(len(self.kept), super().order())


@streams("generators-kept", "check_random_streams_leave_process_state_unchanged", cause="memory-grows")
class GeneratorsKept(PlainStreams):
    """Every epoch's generators are kept."""

    kept: list[Any] = []  # noqa: RUF012  # that it is the class's is the fault

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.kept.append((self.own, self.shared))


_calls: list[Any] = []
_last_calls: deque[Any] = deque(maxlen=1000)


@metrics("history-of-metrics", "check_metrics_leave_process_state_unchanged", cause="memory-grows")
def history(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """All means are kept, which nobody reads."""
    found = right_means(comm, metrics, count)
    _calls.append(found)
    return found


@metrics("last-thousand-metrics")
def last_thousand(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """The last thousand means are kept."""
    found = right_means(comm, metrics, count)
    _last_calls.append(dict(found))
    return found
