"""Accumulation that counts micro-batches wrongly, or synchronises when it should not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.values import Array

from ..base import PlainReplica, _keep, added, fault

LOCAL = "check_gradients_inside_no_sync_are_local"
WINDOW = "check_accumulation_counts_every_micro_batch_once"
TYPICAL = "check_accumulation_without_no_sync_sums_gradients"
TRAINED = "check_accumulated_steps_match_one_process"
INTERRUPTED = "check_exception_inside_no_sync_restores_synchronisation"
BACK = "check_synchronisation_resumes_after_no_sync"


@fault(
    "no-sync-needs-forward-inside",
    LOCAL,
    seen_in=("pytorch/PiPPy#1133", "huggingface/accelerate#1726"),
    cause="synchronised-inside-no-sync",
)
class NoSyncSyncs(PlainReplica):
    """no_sync does nothing: every micro-batch is reduced. The window's gradient is right all the same."""

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        yield


@fault(
    "accum-only-last-survives", WINDOW, LOCAL, seen_in=("allenai/open-instruct#1498",), cause="last-micro-batch-only"
)
class LastSurvives(PlainReplica):
    """Every backward starts from zero."""

    def backward(self, batch: Batch) -> float:
        self.zero_grad()
        return super().backward(batch)


@fault(
    "rebuild-drops-accumulated",
    WINDOW,
    seen_in=("InfiniTensor/InfiniTrain#183",),
    cause="first-micro-batch-missing",
)
class FirstWindowLosesFirst(PlainReplica):
    """After the first backward buckets are rebuilt, and what was accumulated is overwritten: in the first window
    only.
    """

    backwards = 0

    def backward(self, batch: Batch) -> float:
        self.backwards += 1
        if self.backwards == 2:
            self.local = {}
        return super().backward(batch)


@fault("doubling-per-micro-batch", TYPICAL, seen_in=("NVIDIA/Megatron-LM#6660",), cause="gradient-not-reset")
class ReducedTwice(PlainReplica):
    """Reduces all of the gradient again, and adds it to what was reduced before."""

    def synchronise(self, batch_size: int) -> None:
        self.local = added(self.local, self.synced)
        super().synchronise(batch_size)


@fault("no-sync-never-exits", BACK, WINDOW, cause="not-reduced")
class NeverSyncsAgain(PlainReplica):
    """no_sync is never left."""

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        self.syncing = False
        yield


@fault("no-sync-flag-leaks-on-exception", INTERRUPTED, cause="not-reduced")
class FlagLeaks(PlainReplica):
    """no_sync sets a flag and takes it back without try and finally: an exception inside leaves it set."""

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        self.syncing = False
        yield
        self.syncing = True


@fault("no-sync-swallows-exceptions", INTERRUPTED, cause="exceptions-swallowed")
class Swallows(PlainReplica):
    """no_sync takes back its flag, and keeps the exception to itself."""

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        with suppress(Exception), super().no_sync():
            yield


@fault(
    "accum-mean-of-micro-batches",
    WINDOW,
    TRAINED,
    seen_in=("huggingface/transformers#34242",),
    cause="divided-by-micro-batches",
)
class MeanOfMicroBatches(PlainReplica):
    """Divides by the number of micro-batches, which nobody asked for."""

    count = 0

    def backward(self, batch: Batch) -> float:
        self.count += 1
        return super().backward(batch)

    def synchronise(self, batch_size: int) -> None:
        super().synchronise(batch_size)
        self.synced = {name: gradient / gradient.dtype.type(self.count) for name, gradient in self.synced.items()}
        self.count = 0


@fault(
    "empty-window-swallows-the-next",
    "check_random_training_programs_match_one_process",
    cause="not-reduced",
)
class EmptyWindow(PlainReplica):
    """Leaving no_sync takes it for granted that a backward was inside: after none the next one is not synchronised."""

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


@fault("window-ends-without-samples", LOCAL, cause="not-reduced")
class EndsWithoutSamples(PlainReplica):
    """A micro-batch that is empty on all ranks is passed over, and with it what the window has gathered."""

    def synchronise(self, batch_size: int) -> None:
        if self.comm.all_reduce(np.array([float(batch_size)]))[0]:
            super().synchronise(batch_size)


@fault("inner-exception-ends-the-outer-window", INTERRUPTED, cause="synchronised-inside-no-sync")
class ExceptionEndsOuter(PlainReplica):
    """An exception puts synchronisation back as it was at first, and not as it was outside."""

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        before, self.syncing = self.syncing, False
        try:
            yield
        except BaseException:
            before = True
            raise
        finally:
            self.syncing = before


@fault("no-window-after-an-exception", INTERRUPTED, cause="synchronised-inside-no-sync")
class NoWindowAfterException(PlainReplica):
    """After an exception no_sync does not switch synchronisation off any more."""

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
    """Micro-batches are kept until the window ends, as they are, and computed then: their arrays may hold others by now."""

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


@fault("sent-before-the-last-gradient", WINDOW, cause="last-micro-batch-missing")
class SentTooEarly(PlainReplica):
    """Counters of what a bucket waits for go on inside no_sync: it is sent before the last backward has added to it."""

    def backward(self, batch: Batch) -> float:
        gathered = dict(self.local)
        loss = super().backward(batch)
        if self.syncing and gathered:
            self.synced = {}
            self.local = gathered
            super().synchronise(len(batch.inputs))
        return loss


@fault(
    "micro-batches-counted-in-a-byte",
    "check_accumulation_over_258_micro_batches_is_exact",
    cause="micro-batches-lost",
)
class CountedInAByte(PlainReplica):
    """The first micro-batch of a window takes the place of what is there, and the 257th has its number."""

    gathered = 0

    def backward(self, batch: Batch) -> float:
        if self.gathered % 256 == 0:
            self.local = {}
        self.gathered = 0 if self.syncing else self.gathered + 1
        return super().backward(batch)
