"""Replicas that reduce a gradient in another backward than that which ends its window, or not before the step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ddpcheck.contract.adapter import Batch

from ..base import PlainReplica, added, fault

EXACT = "check_gradients_equal_the_large_batch_exactly"


@fault(
    "reduced-once-until-zero-grad",
    "check_accumulation_without_no_sync_sums_gradients",
    cause="last-backward-not-reduced",
)
class ReducedOnce(PlainReplica):
    """A gradient that was reduced counts as reduced until zero_grad(), so later backwards add local gradients to it."""

    reduced = False

    def synchronise(self, batch_size: int) -> None:
        if not self.reduced:
            super().synchronise(batch_size)
        self.reduced = True

    def zero_grad(self) -> None:
        super().zero_grad()
        self.reduced = False


@fault(
    "no-sync-one-backward-late",
    "check_gradients_are_the_mean_of_local_gradients",
    seen_in=("karpathy/build-nanogpt#30",),
    cause="no-sync-late",
)
class FlagReadInForward(PlainReplica):
    """The forward pass reads the flag of no_sync that the backward of the previous batch has set."""

    inside = False

    def backward(self, batch: Batch) -> float:
        loss = super().backward(batch)
        self.syncing = not self.inside
        return loss

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        before, self.inside = self.inside, True
        try:
            yield
        finally:
            self.inside = before


@fault("reduced-in-step", EXACT, cause="reduced-in-step", seen_in=("horovod/horovod#1346",))
class ReducedInStep(PlainReplica):
    """Gradients stay local until step() reduces them."""

    def synchronise(self, batch_size: int) -> None:
        pass

    def step(self) -> None:
        self.synced = added(self.synced, {name: self.reduce(name, self.mine(name)) for name in self.used_somewhere()})
        self.local = {}
        super().step()
