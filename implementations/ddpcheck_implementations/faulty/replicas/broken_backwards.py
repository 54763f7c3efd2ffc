"""Replicas after an exception in the middle of a backward: correct, silent, and different between ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ddpcheck.contract.adapter import Batch
from ddpcheck.contract.optional_methods import BackwardBroken
from ddpcheck.seeded_values import Array

from ..base import PlainReplica, fault

BROKE_LOCALLY = "check_failed_backward_inside_no_sync_leaves_no_trace"
TRAINS_ON = "check_backward_after_failed_backward_raises_or_is_correct"


class Breaking(PlainReplica):
    """Correct: a backward stores nothing before its end."""

    def break_backward(self, batch: Batch) -> float:
        network: Any = self.network
        whole = network.backward

        def breaks(*arguments: Any, **named: Any) -> float:
            *given, on_gradient = arguments
            return float(whole(*given, _half(on_gradient, len(network.learned) // 2), **named))

        network.backward = breaks
        try:
            return self.backward(batch)
        finally:
            network.backward = whole


def _half(on_gradient: Callable[[str, Array | None], None], count: int) -> Callable[[str, Array | None], None]:
    """A callback that passes on count gradients and then raises."""
    heard: list[str] = []

    def hears(name: str, gradient: Array | None) -> None:
        if len(heard) == count:
            raise BackwardBroken("raised on purpose, in the middle of a backward")
        heard.append(name)
        on_gradient(name, gradient)

    return hears


breaking = fault("keeps-whole-backwards", broken_backward="recovers")(Breaking)


@fault("backward-logs-exceptions", BROKE_LOCALLY, cause="exception-dropped", broken_backward="recovers")
class LogsExceptions(Breaking):
    """Exceptions in backward are only logged, and training continues."""

    def backward(self, batch: Batch) -> float:
        try:
            return super().backward(batch)
        except BackwardBroken:
            return 0.0


@fault("rank-0-remembers-the-exception", TRAINS_ON, cause="broken-backward-told-apart", broken_backward="raises")
class RankZeroRemembers(Breaking):
    """After a failed backward, zero_grad() clears the error mark on all ranks except rank 0."""

    broke = False

    def backward(self, batch: Batch) -> float:
        ended = False
        try:
            loss = super().backward(batch)
            ended = True
        finally:
            self.broke = self.broke or not ended
        return loss

    def zero_grad(self) -> None:
        super().zero_grad()
        self.broke = self.broke and self.rank == 0

    def step(self) -> None:
        if self.broke:
            raise RuntimeError("the last backward did not end")
        super().step()
