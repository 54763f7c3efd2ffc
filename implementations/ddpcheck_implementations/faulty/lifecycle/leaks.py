"""Implementations with right results that change a process setting or keep small objects."""

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

from ddpcheck.seeded_values import Array

from ..engine.circumstances import on_rank
from ..engine.collective_effects import doing
from ..engine.collectives import Call, all_gather, all_reduce, barrier, broadcast, in_place
from ..engine.fault import Fault, table
from ..facet_seams import PlainSampler, PlainStreams, metrics, sampler, streams
from ..metrics.metrics import right_means
from .resources_left import USED


@doing
def new_files_open_to_all(call: Call) -> None:
    os.umask(0o000)


@doing
def only_errors_logged(call: Call) -> None:
    logging.getLogger().setLevel(logging.ERROR)


@doing
def output_switched_off(call: Call) -> None:
    """Then print() does nothing."""
    sys.stdout = None


@doing
def print_replaced(call: Call) -> None:
    builtins.print = lambda *_, **__: None


@doing
def three_digits_printed(call: Call) -> None:
    """Meant for a log of gathered arrays, but all arrays are affected."""
    np.set_printoptions(precision=3)


@doing
def limit_of_descriptors_lowered(call: Call) -> None:
    """Reserve a descriptor for the call, and never release it."""
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, most))


@doing
def alarm_set(call: Call) -> None:
    """Set a time limit, and never cancel it."""
    signal.setitimer(signal.ITIMER_REAL, 3600)


@sampler("orders-kept", "check_samplers_leave_process_state_unchanged", cause="memory-grows")
class OrdersKept(PlainSampler):
    """Every sampler's orders are cached forever."""

    kept: dict[int, Array] = {}  # noqa: RUF012  # the fault: all samplers share this attribute

    def order(self) -> Array:
        return self.kept.setdefault(len(self.kept), super().order())


@streams("generators-kept", "check_random_streams_leave_process_state_unchanged", cause="memory-grows")
class GeneratorsKept(PlainStreams):
    """The random generators of every epoch are kept forever."""

    kept: list[Any] = []  # noqa: RUF012  # the fault: all streams share this attribute

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.kept.append((self.own, self.shared))


_calls: list[Any] = []
_last_calls: deque[Any] = deque(maxlen=1000)


@metrics("history-of-metrics", "check_metrics_leave_process_state_unchanged", cause="memory-grows")
def history(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """All aggregated metrics are kept forever."""
    found = right_means(comm, metrics, count)
    _calls.append(found)
    return found


@metrics("last-thousand-metrics")
def last_thousand(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Correct: the last thousand aggregated metrics are kept."""
    found = right_means(comm, metrics, count)
    _last_calls.append(dict(found))
    return found


# fmt: off
table(
    globals(),
    Fault("permissions-of-new-files", "Broadcast sets the process's umask to 0.",
          where=broadcast, effect=new_files_open_to_all,
          caught_by=USED, cause="process-setting-changed"),
    Fault("logging-switched-off", "All-gather raises the process's log level to errors only.",
          where=all_gather, effect=only_errors_logged,
          caught_by=USED, cause="process-setting-changed"),
    Fault("output-of-rank-0-only", "All-reduce sets sys.stdout to None on every rank except rank 0.",
          where=(all_reduce | in_place) & ~on_rank(0), effect=output_switched_off,
          caught_by=USED, cause="process-setting-changed", seen_in=("facebookresearch/detr (util/misc.py)",)),
    Fault("print-of-others-replaced", "Barrier replaces the built-in print().",
          where=barrier, effect=print_replaced,
          caught_by=USED, cause="process-setting-changed", seen_in=("facebookresearch/detr (util/misc.py)",)),
    Fault("print-precision-changed", "All-gather limits NumPy's printed precision to three digits.",
          where=all_gather, effect=three_digits_printed,
          caught_by=USED, cause="process-setting-changed"),
    Fault("limit-of-descriptors-lowered", "Each all-reduce lowers the process's limit of open files by one.",
          where=all_reduce | in_place, effect=limit_of_descriptors_lowered,
          caught_by=USED, cause="process-setting-changed"),
    Fault("alarm-left-set", "All-reduce leaves a timer running in the process.",
          where=all_reduce | in_place, effect=alarm_set,
          caught_by=USED, cause="process-setting-changed"),
)
# fmt: on
