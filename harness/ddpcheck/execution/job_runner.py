"""Runs a Job on one rank."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext

import numpy as np

from ..contract.adapter import Facets
from ..job import Job
from ..trace import Record
from . import watched_collectives
from .process_settings import ProcessSettings
from .rank_state import RankState
from .runners import RUNNERS
from .short_reads import restore_reads
from .small_buffers import restore_buffers
from .taken_ports import give_ports_back


class Execution:
    """A Job on one rank. `records` grows as operations are entered, so it shows where a rank is stuck.

    scratch: the folder of the Job's files, the same on all ranks, used by no other Job. It need not exist.
    """

    def __init__(
        self, facets: Facets, job: Job, rank: int, progress: Callable[[int], None], scratch: str | None = None
    ) -> None:
        ProcessSettings.at_first()
        self._job = job
        self._rank_state = RankState(facets, job, rank, scratch, progress)
        self.records: list[Record] = self._rank_state.records

    def run(self) -> None:
        """Run all operations in order. Exceptions of the implementation are not caught."""
        poisoned = self._job.data is not None and bool(self._job.data.poisoned)
        try:
            # once for all operations: NumPy may warn of deliberate values such as NaN
            with np.errstate(invalid="ignore", over="ignore") if poisoned else nullcontext():
                self._run_all()
        finally:
            restore_reads()
            restore_buffers()
            give_ports_back()
            watched_collectives.end()

    def _run_all(self) -> None:
        clock, rank_state, records = time.monotonic, self._rank_state, self.records
        for position, operation in enumerate(self._job.operations):
            rank_state.progress(position)
            if operation.kind != "wait":
                rank_state.overwrite_waited()
            entered = clock()
            records.append(Record(position, operation.kind, entered, None, {}))
            values = RUNNERS[type(operation)](rank_state, operation)
            records[-1] = Record(position, operation.kind, entered, clock(), values)
        rank_state.check_again_later()
