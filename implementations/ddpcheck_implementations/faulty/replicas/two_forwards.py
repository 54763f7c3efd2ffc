"""Two forward passes before one backward, and what the second does to what the first has kept.

Networks here keep one forward pass only, so each batch goes forward and back by itself before gradients are added up;
that buffers were written in between is counted, as torch's version counters do.
"""

from __future__ import annotations

from ddpcheck.contract.adapter import Batch

from ..base import PlainReplica, fault

BOTH = "check_two_forwards_then_one_backward_sums_gradients"


class Both(PlainReplica):
    """Correct: buffers are taken over once, before the first of the two forward passes."""

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
    """Buffers are broadcast in place before each forward pass, the second one included."""

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


@fault("first-forward-forgotten", BOTH, cause="last-micro-batch-only", two_forwards=True)
class ForgetsFirst(Both):
    """The wrapper keeps the state of one forward pass: backward goes through the second only."""

    def backward_of_both(self, first: Batch, second: Batch) -> float:
        held = dict(self.local)
        loss = super().backward_of_both(first, second)
        self.zero_grad()
        self.local = held
        self.backward(second)
        return loss


@fault("mean-of-two-losses", BOTH, cause="divided-too-often", two_forwards=True)
class MeanOfBoth(Both):
    """The gradient is that of the mean of the two losses, where the loss that is told is their sum."""

    def add_up(self, first: Batch, second: Batch) -> float:
        loss = super().add_up(first, second)
        self.scale(0.5)
        return loss
