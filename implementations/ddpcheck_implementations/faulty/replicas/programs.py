"""Replicas that are wrong only after a sequence of operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.seeded_values import Array

from ..base import PlainReplica, added, fault
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.replicas import (
    after,
    around,
    before,
    freezing,
    given,
    gradients_dropped,
    has_optimizer_state,
    in_place_of,
    inside_no_sync,
    local_gradients_dropped,
    no_sync_ended,
    optimizer_state_dropped,
)
from .freezing import UNFROZEN

GIVEN = "check_replica_does_not_change_given_arrays"
ANY = "check_random_training_programs_match_one_process"


@fault("backward-after-step-starts-anew", ANY, cause="last-micro-batch-only")
class WindowEndsWithStep(PlainReplica):
    """The first backward after a step clears gradients."""

    stepped = False

    def step(self) -> None:
        super().step()
        self.stepped = True

    def backward(self, batch: Batch) -> float:
        if self.stepped:
            self.zero_grad()
        self.stepped = False
        return super().backward(batch)


@fault("loaded-state-is-shared", GIVEN, cause="works-in-callers-arrays")
class TrainsInLoadedState(PlainReplica):
    """Training after load_state() changes the caller's state, so a second load differs."""

    def load_state(self, state: Mapping[str, Array]) -> None:
        super().load_state(state)
        self.loaded = state

    def step(self) -> None:
        super().step()
        for name, array in self.network.parameters.items():
            if hasattr(self, "loaded"):
                self.loaded[name][...] = array


@fault("zero-grad-twice", ANY, cause="not-reduced")
class ZeroGradTwice(PlainReplica):
    """After two zero_grad() calls in a row, the next backward is not reduced."""

    fresh = False

    def zero_grad(self) -> None:
        self.armed = not self.fresh
        self.fresh = True
        super().zero_grad()

    def backward(self, batch: Batch) -> float:
        self.fresh = False
        return super().backward(batch)

    def reduce(self, name: str, gradient: Array) -> Array:
        return super().reduce(name, gradient) if getattr(self, "armed", True) else gradient


@around("zero_gradients")
def second_half_kept(replica: PlainReplica, zero_gradients: Callable[[], None]) -> None:
    """Like two buckets of which only the first is cleared."""
    kept = replica._shown()
    zero_gradients()
    names = list(kept)
    replica.synced |= {name: kept[name] for name in names[len(names) // 2 :]}


@fault("unfreezing-after-resume", ANY, cause="not-reduced")
class HooksOfTheCheckpoint(PlainReplica):
    """load_state() hooks the parameters that are trainable then; one unfrozen later stays local."""

    hooked: frozenset[str] | None = None

    def load_state(self, state: Mapping[str, Array]) -> None:
        super().load_state(state)
        self.hooked = frozenset(self.network.learned)

    def reduce(self, name: str, gradient: Array) -> Array:
        return super().reduce(name, gradient) if self.hooked is None or name in self.hooked else gradient


@fault("batch-size-of-the-checkpoint", ANY, cause="wrong-divisor")
class BatchSizeOfCheckpoint(PlainReplica):
    """A resumed replica divides by the saved batch size instead of the present one."""

    size = saved = 0

    def backward(self, batch: Batch) -> float:
        self.size = len(batch.inputs)
        return super().backward(batch)

    def state(self) -> dict[str, Array]:
        return {**super().state(), "batch_size": np.array(self.size)}

    def load_state(self, state: Mapping[str, Array]) -> None:
        super().load_state({name: value for name, value in state.items() if name != "batch_size"})
        self.saved = int(state["batch_size"])

    def reduce(self, name: str, gradient: Array) -> Array:
        mean = super().reduce(name, gradient)
        return mean * mean.dtype.type(self.size / self.saved) if self.saved else mean


@fault("seen-batch-cached", ANY, cause="")
class CachesBatches(PlainReplica):
    """The gradient of a batch is cached by its first sample."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.cache: dict[bytes, tuple[float, dict[str, Array]]] = {}

    def backward(self, batch: Batch) -> float:
        if not self.syncing or self.local or batch.branches or not np.mod(batch.inputs[:1], 1).any():
            return super().backward(batch)
        before, self.synced = self.synced, {}
        key = batch.inputs[:1].tobytes()
        if key not in self.cache:
            self.cache[key] = super().backward(batch), self.synced
        loss, found = self.cache[key]
        self.synced = added(before, found)
        return loss


@in_place_of("no_sync")
@contextmanager
def synchronising_at_its_end(replica: PlainReplica) -> Iterator[None]:
    """An outer no_sync may still be open."""
    replica.syncing = False
    try:
        yield
    finally:
        replica.syncing = True


@fault("clip-norm-kept-for-the-window", ANY, cause="norm-stale")
class NormOfTheFirstClip(PlainReplica):
    """The clipping norm is measured once between two zero_grad() calls and reused."""

    norm: float | None = None

    def zero_grad(self) -> None:
        super().zero_grad()
        self.norm = None

    def clip(self, max_norm: float) -> float:
        if self.norm is None:
            self.norm = super().clip(max_norm)
        else:
            self.scale(min(1.0, max_norm / self.norm) if self.norm else 1.0)
        return self.norm


@given("load_state")
def missing_state_filled(replica: PlainReplica, state: Mapping[str, Array]) -> dict[str, Array]:
    """Give a parameter without optimizer state the state of the first parameter of its shape."""
    filled = dict(state)
    for name, array in replica.network.parameters.items():
        for key, value in state.items():
            what, _, other = key.removeprefix("optimizer.").partition(".")
            alike = key.startswith("optimizer.") and replica.network.parameters[other].shape == array.shape
            if alike and name in replica.network.learned:
                filled.setdefault(f"optimizer.{what}.{name}", value)
    return filled


@before("state")
def local_gradients_added_to_the_reduced(replica: PlainReplica) -> None:
    if replica.synced and replica.local:
        replica.synced, replica.local = added(replica.synced, replica.local), {}


@fault("window-has-four-micro-batches", ANY, cause="synchronised-inside-no-sync")
class WindowOfFour(PlainReplica):
    """Every fourth micro-batch is reduced, even inside no_sync."""

    gathered = 0

    def backward(self, batch: Batch) -> float:
        loss = super().backward(batch)
        self.gathered = 0 if self.syncing else self.gathered + 1
        if self.gathered == 4:
            self.gathered = 0
            self.synchronise(len(batch.inputs))
        return loss


# fmt: off
table(
    globals(),
    Fault("step-clears-gradients", "step() drops all gradients.",
          where=always, effect=after("step")(gradients_dropped),
          caught_by=ANY, cause="gradients-taken-by"),
    Fault("saving-drops-momentum", "state() drops the optimizer's state.",
          where=always, effect=after("state")(optimizer_state_dropped),
          caught_by=ANY, cause="optimizer-state-lost"),
    Fault("zeros-become-none", "zero_gradients() sets gradients to None instead of 0.",
          where=always, effect=in_place_of("zero_gradients")(gradients_dropped),
          caught_by=ANY, cause="gradients-taken-by"),
    Fault("zeros-of-the-first-bucket", "zero_gradients() clears only the first half of the gradients.",
          where=always, effect=second_half_kept,
          caught_by=ANY, cause="gradient-not-reset"),
    Fault("freezing-forgets-momentum", "Freezing a layer drops the optimizer's state.",
          where=freezing & has_optimizer_state,
          effect=after("set_trainable")(optimizer_state_dropped),
          caught_by=(ANY, UNFROZEN), cause="optimizer-state-lost"),
    Fault("inner-no-sync-ends-the-outer", "Leaving a nested no_sync turns synchronisation on inside the outer one.",
          where=always, effect=synchronising_at_its_end,
          caught_by=ANY, cause="no-sync-ended-by"),
    Fault("evaluation-ends-no-sync", "predict() inside no_sync turns synchronisation on.",
          where=always, effect=after("predict")(no_sync_ended),
          caught_by=ANY, cause="no-sync-ended-by"),
    Fault("saving-ends-the-window", "state() inside no_sync drops the accumulated gradients.",
          where=inside_no_sync, effect=before("state")(local_gradients_dropped),
          caught_by=ANY, cause="gradients-taken-by"),
    Fault("loading-fills-missing-state",
          "load_state() gives a parameter without optimizer state that of another of its shape.",
          where=always, effect=missing_state_filled,
          caught_by=ANY, cause="momentum-of-other-parameter"),
    Fault("saving-counts-local-as-reduced", "state() marks accumulated local gradients as reduced.",
          where=always, effect=local_gradients_added_to_the_reduced,
          caught_by=ANY, cause="accumulated-not-reduced"),
)
# fmt: on
