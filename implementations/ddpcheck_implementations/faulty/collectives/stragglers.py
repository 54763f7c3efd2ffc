"""Collectives that leave out a late rank after a time limit."""

from __future__ import annotations

import time

import numpy as np

from ddpcheck.seeded_values import Array

from ..base import PlainReplica, fault
from ..engine.collectives import Call, CollectiveEffect, all_reduce
from ..engine.fault import Fault, table


def without_stragglers(seconds: float) -> CollectiveEffect:
    """Reduce over ranks that arrive within these seconds. Times are compared after all arrivals, to avoid a race."""

    def reduced(call: Call) -> Array:
        came = np.ravel(call.comm.all_gather(np.array([time.monotonic()]), group=call.group))
        rows = call.gathered()[came <= came.min() + seconds]
        folds = {"min": np.minimum, "max": np.maximum, "prod": np.multiply}
        whole = folds.get(call.op or "", np.add).reduce(rows, axis=0, dtype=call.array.dtype)
        return np.asarray(whole / len(rows) if call.op == "mean" else whole).astype(call.array.dtype)

    return CollectiveEffect(instead=reduced)


@fault("mean-without-late-ranks", "check_backward_waits_for_late_ranks", cause="late-rank-not-awaited", deep=True)
class MeanWithoutLateRanks(PlainReplica):
    """A mean leaves out ranks that are three seconds late."""

    def synchronise(self, batch_size: int) -> None:
        came = np.ravel(self.comm.all_gather(np.array([time.monotonic()])))
        self.in_time = came <= came.min() + 3.0
        super().synchronise(batch_size)

    def reduce(self, name: str, gradient: Array) -> Array:
        rows = self.comm.all_gather(gradient)[self.in_time]
        return np.asarray(rows.mean(axis=0), gradient.dtype)


# fmt: off
table(
    globals(),
    Fault("straggler-dropped-after-3-seconds", "All-reduce leaves out ranks that are 3 seconds late.",
          where=all_reduce, effect=without_stragglers(3.0),
          caught_by="check_late_ranks_do_not_change_results", cause="late-rank-missed", deep=True),
    Fault("straggler-dropped-after-10-seconds", "All-reduce leaves out ranks that are 10 seconds late.",
          where=all_reduce, effect=without_stragglers(10.0),
          caught_by="check_late_ranks_do_not_change_results", cause="late-rank-missed", deep=True),
)
# fmt: on
