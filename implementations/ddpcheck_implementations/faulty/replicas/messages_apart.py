"""Replicas whose ranks send different messages, weigh themselves, or send more, or more often, than they need."""

from __future__ import annotations

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.values import Array

from ..base import PlainReplica, fault
from ..bucketed import BucketReplica
from ..collectives.wasteful import SILENT, TOGETHER
from ..engine.circumstances import elements, on_rank
from ..engine.fault import Fault, table
from ..engine.gradients import Gradient, sending
from .gradient import EXACT
from .local_gradients import UNEVEN
from .unused import SOME

DROPPED = "check_synchronisation_resumes_after_no_sync"


@sending
def halved_before_the_reduction(gradient: Gradient) -> Array:
    return gradient.cast(gradient.array / 2)


@fault("window-stays-open-after-zero-grad", DROPPED, cause="dropped-window-remembered")
class WindowStaysOpen(PlainReplica):
    """zero_grad drops what was accumulated inside no_sync, and not the mark that a window is open."""

    open = False

    def backward(self, batch: Batch) -> float:
        if self.open and not self.local:
            raise RuntimeError("the reduction of the backward before has not finished")
        self.open = not self.syncing
        return super().backward(batch)


@fault("order-of-use-on-each-rank", SOME, cause="messages-differ-since")
class OrderOfUse(PlainReplica):
    """After a backward, a rank reduces first the parameters that it has used there, as ready order says."""

    first: frozenset[str] = frozenset()

    def used_somewhere(self) -> list[str]:
        names = sorted(super().used_somewhere(), key=lambda name: name not in self.first)
        self.first = self.latest
        return names


@fault("idle-rank-stays-away", UNEVEN, cause="idle-rank-skips-collectives")
class StaysAway(PlainReplica):
    """A rank without samples returns from backward at once."""

    def backward(self, batch: Batch) -> float:
        return super().backward(batch) if len(batch.inputs) else 0.0


@fault("buckets-of-five-small-gradients", TOGETHER, cause="gradients-in-small-groups", bundles_gradients=True)
class SmallBuckets(BucketReplica):
    """A bucket holds five gradients of four numbers."""

    cap = 5 * 4 * np.dtype(np.float32).itemsize


@fault("parameters-sent-in-each-forward", SILENT, cause="sends-inside-no-sync")
class SentInEachForward(PlainReplica):
    """Rank 0 sends the parameters before each forward, as shards are gathered, inside no_sync too."""

    def before_forward(self) -> None:
        super().before_forward()
        for array in self.network.parameters.values():
            array[...] = self.comm.broadcast(array)


# fmt: off
table(
    globals(),
    Fault("last-rank-weighs-half", where=on_rank(1) & ~elements(1), effect=halved_before_the_reduction,
          caught_by=EXACT, cause="ranks-weighted"),
)
# fmt: on
