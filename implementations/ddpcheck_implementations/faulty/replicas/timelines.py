"""Replicas that report timelines, one of them wrongly."""

from __future__ import annotations

import time

from ddpcheck.contract.adapter import Batch
from ddpcheck.contract.optional_methods import Span

from ..base import PlainReplica, fault

TIMELINE = "check_timeline_describes_the_last_backward"


class Timed(PlainReplica):
    """Correct: the timeline has one span for backward and one for all reductions."""

    spans: tuple[Span, ...] = ()
    reduced: tuple[Span, ...] = ()

    def backward(self, batch: Batch) -> float:
        begin, self.reduced = time.monotonic(), ()
        loss = super().backward(batch)
        self.spans = (Span("backward", begin, time.monotonic()), *self.reduced)
        return loss

    def synchronise(self, batch_size: int) -> None:
        begin = time.monotonic()
        super().synchronise(batch_size)
        self.reduced = (Span("all_reduce 0", begin, time.monotonic()),)

    def timeline(self) -> tuple[Span, ...]:
        return self.spans


timed = fault("timed", timeline=True)(Timed)


@fault("timeline-of-the-backward-before", TIMELINE, cause="timeline-of-other-backward", timeline=True)
class BackwardBefore(Timed):
    """The timeline is that of the previous backward."""

    before: tuple[Span, ...] = ()

    def backward(self, batch: Batch) -> float:
        self.before = self.spans
        return super().backward(batch)

    def timeline(self) -> tuple[Span, ...]:
        return self.before
