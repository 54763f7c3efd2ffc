"""Accumulation that counts micro-batches wrongly, or synchronises when it should not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.seeded_values import Array

from ..base import PlainReplica, _keep, added, fault
from ..engine.circumstances import Circumstance, always
from ..engine.fault import Fault, table
from ..engine.replicas import around, before, gradients_dropped, in_place_of, inside_no_sync, local_gradients_dropped

LOCAL = "check_gradients_inside_no_sync_are_local"
WINDOW = "check_accumulation_counts_every_micro_batch_once"
TYPICAL = "check_accumulation_without_no_sync_sums_gradients"
TRAINED = "check_accumulated_steps_match_one_process"
INTERRUPTED = "check_exception_inside_no_sync_restores_synchronisation"
BACK = "check_synchronisation_resumes_after_no_sync"


@in_place_of("no_sync")
@contextmanager
def no_effect(replica: PlainReplica) -> Iterator[None]:
    """Every micro-batch is reduced. The window's gradient is still right."""
    yield


at_the_second_call = Circumstance("at the second call", lambda use: use.number == 2)


@before("synchronise")
def reduced_gradients_added(replica: PlainReplica, batch_size: int) -> None:
    replica.local = added(replica.local, replica.synced)


@in_place_of("no_sync")
@contextmanager
def never_left(replica: PlainReplica) -> Iterator[None]:
    replica.syncing = False
    yield


@in_place_of("no_sync")
@contextmanager
def not_left_after_an_exception(replica: PlainReplica) -> Iterator[None]:
    """Without try and finally."""
    replica.syncing = False
    yield
    replica.syncing = True


@in_place_of("no_sync")
@contextmanager
def exceptions_swallowed(replica: PlainReplica) -> Iterator[None]:
    with suppress(Exception), PlainReplica.no_sync(replica):
        yield


@fault(
    "accum-mean-of-micro-batches",
    WINDOW,
    TRAINED,
    seen_in=("huggingface/transformers#34242",),
    cause="divided-by-micro-batches",
)
class MeanOfMicroBatches(PlainReplica):
    """Gradients are divided by the number of micro-batches, although a sum was asked for."""

    count = 0

    def backward(self, batch: Batch) -> float:
        self.count += 1
        return super().backward(batch)

    def synchronise(self, batch_size: int) -> None:
        super().synchronise(batch_size)
        self.synced = {name: gradient / gradient.dtype.type(self.count) for name, gradient in self.synced.items()}
        self.count = 0


@fault("bucket-counts-inside-no-sync", LOCAL, BACK, WINDOW, cause="not-reduced-after-no-sync")
class CountsInsideNoSync(PlainReplica):
    """A bucket counts gradients inside no_sync too, is not reset there, and never has the right count again."""

    counted = 0

    def backward(self, batch: Batch) -> float:
        self.counted += 1
        loss = super().backward(batch)
        if self.syncing:
            self.counted = 0
        return loss

    def synchronise(self, batch_size: int) -> None:
        if self.counted == 1:
            super().synchronise(batch_size)


@fault(
    "empty-window-swallows-the-next",
    "check_random_training_programs_match_one_process",
    cause="not-reduced",
)
class EmptyWindow(PlainReplica):
    """After a no_sync block without a backward, the next backward is not synchronised."""

    pending = False

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        with super().no_sync():
            yield
        self.pending = not self.local

    def synchronise(self, batch_size: int) -> None:
        if not self.pending:
            super().synchronise(batch_size)
        self.pending = False


@around("synchronise")
def skipped_without_samples_on_any_rank(
    replica: PlainReplica, synchronise: Callable[[int], None], batch_size: int
) -> None:
    """Then the window's accumulated gradients stay local."""
    if replica.comm.all_reduce(np.array([float(batch_size)]))[0]:
        synchronise(batch_size)


@in_place_of("no_sync")
@contextmanager
def synchronising_after_an_exception(replica: PlainReplica) -> Iterator[None]:
    """An outer no_sync may still be open."""
    before, replica.syncing = replica.syncing, False
    try:
        yield
    except BaseException:
        before = True
        raise
    finally:
        replica.syncing = before


@fault("no-window-after-an-exception", INTERRUPTED, cause="no-sync-left-by-exception")
class NoWindowAfterException(PlainReplica):
    """After an exception inside no_sync, later no_sync blocks have no effect."""

    failed = False

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        before, self.syncing = self.syncing, self.failed
        try:
            yield
        except BaseException:
            self.failed = True
            raise
        finally:
            self.syncing = before


@fault("window-computed-at-its-end", WINDOW, cause="unexpected-nonfinite")
class ComputedAtItsEnd(PlainReplica):
    """Micro-batches are stored without a copy and computed at the window's end, when they may have changed."""

    kept: tuple[Batch, ...] = ()

    def backward(self, batch: Batch) -> float:
        if self.syncing:
            self.compute()
            return super().backward(batch)
        self.kept = (*self.kept, batch)
        return self.network.backward(batch.inputs, batch.targets, batch.branches, lambda name, gradient: None)

    def compute(self) -> None:
        for batch in self.kept:
            found: dict[str, Array] = {}
            self.network.backward(batch.inputs, batch.targets, batch.branches, _keep(found))
            self.local = added(self.local, found)
        self.kept = ()

    def zero_grad(self) -> None:
        self.kept = ()
        super().zero_grad()

    def _shown(self) -> dict[str, Array]:
        self.compute()
        return super()._shown()


@around("backward")
def last_micro_batch_left_out(replica: PlainReplica, backward: Callable[[Batch], float], batch: Batch) -> float:
    """A bucket counts gradients inside no_sync too, so it is sent before the last backward has added to it."""
    gathered = dict(replica.local)
    loss = backward(batch)
    if gathered:
        replica.synced, replica.local = {}, gathered
        replica.synchronise(len(batch.inputs))
    return loss


@fault(
    "micro-batches-counted-in-a-byte",
    "check_accumulation_over_258_micro_batches_is_exact",
    cause="micro-batches-lost",
)
class CountedInAByte(PlainReplica):
    """Micro-batches are counted in one byte, so the 257th overwrites the accumulated gradient."""

    gathered = 0

    def backward(self, batch: Batch) -> float:
        if self.gathered % 256 == 0:
            self.local = {}
        self.gathered = 0 if self.syncing else self.gathered + 1
        return super().backward(batch)


# fmt: off
table(
    globals(),
    Fault("no-sync-needs-forward-inside", "no_sync has no effect: every micro-batch is reduced.",
          where=always, effect=no_effect,
          caught_by=LOCAL, cause="synchronised-inside-no-sync",
          seen_in=("pytorch/PiPPy#1133", "huggingface/accelerate#1726")),
    Fault("accum-only-last-survives", "Each backward drops the gradients accumulated before.",
          where=always, effect=before("backward")(gradients_dropped),
          caught_by=(WINDOW, LOCAL), cause="last-micro-batch-only", seen_in=("allenai/open-instruct#1498",)),
    Fault("rebuild-drops-accumulated", "The second backward drops the gradients accumulated before.",
          where=at_the_second_call, effect=before("backward")(local_gradients_dropped),
          caught_by=WINDOW, cause="first-micro-batch-missing", seen_in=("InfiniTensor/InfiniTrain#183",)),
    Fault("doubling-per-micro-batch",
          "Each reduction adds the gradients that are already reduced and reduces them again.",
          where=always, effect=reduced_gradients_added,
          caught_by=TYPICAL, cause="gradient-not-reset", seen_in=("NVIDIA/Megatron-LM#6660",)),
    Fault("no-sync-never-exits", "Leaving no_sync does not turn synchronisation on again.",
          where=always, effect=never_left,
          caught_by=(BACK, WINDOW), cause="not-reduced"),
    Fault("no-sync-flag-leaks-on-exception", "An exception inside no_sync leaves synchronisation off.",
          where=always, effect=not_left_after_an_exception,
          caught_by=INTERRUPTED, cause="no-sync-left-by-exception"),
    Fault("no-sync-swallows-exceptions", "no_sync swallows exceptions.",
          where=always, effect=exceptions_swallowed,
          caught_by=INTERRUPTED, cause="exceptions-swallowed"),
    Fault("window-ends-without-samples", "A window whose last micro-batch has no samples on any rank is not reduced.",
          where=always, effect=skipped_without_samples_on_any_rank,
          caught_by=LOCAL, cause="not-reduced"),
    Fault("inner-exception-ends-the-outer-window",
          "An exception in a nested no_sync turns synchronisation on inside the outer one.",
          where=always, effect=synchronising_after_an_exception,
          caught_by=INTERRUPTED, cause="no-sync-left-by-exception"),
    Fault("sent-before-the-last-gradient",
          "A window's gradients are reduced before the last micro-batch has been added.",
          where=~inside_no_sync, effect=last_micro_batch_left_out,
          caught_by=WINDOW, cause="last-micro-batch-missing"),
)
# fmt: on
