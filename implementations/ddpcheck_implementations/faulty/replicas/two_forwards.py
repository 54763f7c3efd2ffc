"""Replicas that are wrong for two forward passes before one backward.

The networks here store one forward pass only. So each batch runs forward and backward separately, and gradients are added.
A counter of writes to buffers stands for torch's version counters.
"""

from __future__ import annotations

from collections.abc import Callable

from ddpcheck.contract.adapter import Batch

from ..base import PlainReplica, fault
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.replicas import after, around

BOTH = "check_two_forwards_then_one_backward_sums_gradients"


class Both(PlainReplica):
    """Correct: buffers are broadcast once, before the first of two forward passes."""

    def backward_of_both(self, first: Batch, second: Batch) -> float:
        self.before_forward()
        return self.add_up(first, second)

    def add_up(self, first: Batch, second: Batch) -> float:
        before_forward, self.before_forward = self.before_forward, lambda: None  # type: ignore[method-assign]
        try:
            with self.no_sync():
                loss = self.backward(first)
            return loss + self.backward(second)
        finally:
            self.before_forward = before_forward  # type: ignore[method-assign]


two_forwards = fault("two-forwards", seen_in=("pytorch/pytorch#22095",), two_forwards=True)(Both)


@fault(
    "buffer-broadcast-between-forwards",
    BOTH,
    seen_in=("pytorch/pytorch#22095",),
    cause="second-forward-changes-buffers",
    two_forwards=True,
)
class BroadcastsBetween(Both):
    """Buffers are broadcast in place before the second of two forward passes, which spoils the first."""

    version = 0

    def before_forward(self) -> None:
        super().before_forward()
        self.version += bool(self.network.buffers)

    def backward_of_both(self, first: Batch, second: Batch) -> float:
        self.before_forward()
        kept = self.version
        self.before_forward()
        if self.version != kept:
            raise RuntimeError("a tensor needed for gradient computation has been modified by an inplace operation")
        return self.add_up(first, second)


@around("backward_of_both")
def second_forward_only(
    replica: PlainReplica, both: Callable[[Batch, Batch], float], first: Batch, second: Batch
) -> float:
    """The wrapper stores the state of one forward pass only. The loss is the sum of both."""
    held = dict(replica.local)
    loss = both(first, second)
    replica.zero_grad()
    replica.local = held
    replica.backward(second)
    return loss


@after("add_up")
def gradients_halved(replica: PlainReplica, first: Batch, second: Batch) -> None:
    replica.scale(0.5)


# fmt: off
table(
    globals(),
    Fault("first-forward-forgotten", "Two forward passes and one backward give the gradient of the second only.",
          where=always, effect=second_forward_only.of(Both),
          caught_by=BOTH, cause="last-micro-batch-only", two_forwards=True),
    Fault("mean-of-two-losses",
          "Two forward passes and one backward give the mean of both gradients instead of their sum.",
          where=always, effect=gradients_halved.of(Both),
          caught_by=BOTH, cause="divided-too-often", two_forwards=True),
)
# fmt: on
