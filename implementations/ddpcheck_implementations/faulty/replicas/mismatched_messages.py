"""Replicas with different messages or weights on some ranks, or with unneeded messages."""

from __future__ import annotations

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.seeded_values import Array

from ..base import PlainReplica, fault
from ..bucketed import BucketReplica
from ..collectives.wasteful import SILENT, TOGETHER
from ..engine.circumstances import larger, on_rank
from ..engine.fault import Fault, table
from ..engine.gradients import Gradient, sending
from .local_gradients import UNEVEN
from .unused import SOME

LARGE = "check_large_and_one_element_gradients_are_exact"
DROPPED = "check_synchronisation_resumes_after_no_sync"


@sending
def halved_before_the_reduction(gradient: Gradient) -> Array:
    return gradient.cast(gradient.array / 2)


@fault("window-stays-open-after-zero-grad", DROPPED, cause="dropped-window-remembered")
class WindowStaysOpen(PlainReplica):
    """After zero_grad() drops gradients accumulated inside no_sync, the next backward raises an error."""

    open = False

    def backward(self, batch: Batch) -> float:
        if self.open and not self.local:
            raise RuntimeError("the reduction of the backward before has not finished")
        self.open = not self.syncing
        return super().backward(batch)


@fault("order-of-use-on-each-rank", SOME, cause="messages-differ-since")
class OrderOfUse(PlainReplica):
    """Each rank reduces the parameters of its previous backward first, so orders differ between ranks."""

    first: frozenset[str] = frozenset()

    def used_somewhere(self) -> list[str]:
        names = sorted(super().used_somewhere(), key=lambda name: name not in self.first)
        self.first = self.latest
        orders = self.comm.all_gather(np.array([self.network.learned.index(name) for name in names], np.int64))
        if (orders != orders[0]).any():
            raise RuntimeError("the ranks reduce their gradients in different orders")
        return names


@fault("idle-rank-reduces-nothing", UNEVEN, cause="idle-rank-skips-collectives")
class ReducesNothing(PlainReplica):
    """A rank without samples takes no part in the reductions."""

    def synchronise(self, batch_size: int) -> None:
        if batch_size:
            super().synchronise(batch_size)
        else:
            self.used_somewhere()


@fault("buckets-of-ten-numbers", TOGETHER, cause="gradients-in-small-groups", bundles_gradients=True)
class TenNumbers(BucketReplica):
    """A bucket holds only ten numbers, so a backward sends many messages."""

    cap = 10 * np.dtype(np.float32).itemsize


@fault("parameters-sent-in-each-forward", SILENT, cause="sends-inside-no-sync")
class SentInEachForward(PlainReplica):
    """Rank 0 broadcasts parameters before each forward, also inside no_sync."""

    def before_forward(self) -> None:
        super().before_forward()
        for array in self.network.parameters.values():
            array[...] = self.comm.broadcast(array)


@fault("reduced-by-the-next-backward", SILENT, cause="sent-after-backward")
class ReducedByTheNextBackward(PlainReplica):
    """A backward leaves its reductions to the next one, even if that is inside no_sync."""

    waiting: tuple[Array, ...] = ()

    def before_forward(self) -> None:
        for gradient in self.waiting:
            self.comm.all_reduce(gradient)
        self.waiting = ()
        super().before_forward()

    def synchronise(self, batch_size: int) -> None:
        self.waiting = tuple(self.mine(name).copy() for name in self.used_somewhere())


# fmt: off
table(
    globals(),
    Fault("large-gradients-of-rank-1-weigh-half",
          "Rank 1 halves gradients of more than 1,000 elements before the reduction.",
          where=on_rank(1) & larger(1000), effect=halved_before_the_reduction,
          caught_by=LARGE, cause="ranks-weighted"),
)
# fmt: on
