"""What goes wrong in a sequence of operations only: each operation alone is right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.values import Array

from ..base import PlainReplica, added, fault
from .freezing import UNFROZEN

GIVEN = "check_replica_does_not_change_given_arrays"
ANY = "check_random_training_programs_match_one_process"


@fault("step-clears-gradients", ANY, cause="gradients-taken-by")
class StepClears(PlainReplica):
    """A step ends with zero_grad, which nobody asked for."""

    def step(self) -> None:
        super().step()
        self.zero_grad()


@fault("backward-after-step-starts-anew", ANY, cause="last-micro-batch-only")
class WindowEndsWithStep(PlainReplica):
    """The first backward after a step begins with zero_grad."""

    stepped = False

    def step(self) -> None:
        super().step()
        self.stepped = True

    def backward(self, batch: Batch) -> float:
        if self.stepped:
            self.zero_grad()
        self.stepped = False
        return super().backward(batch)


@fault("saving-drops-momentum", ANY, cause="optimizer-state-lost")
class SavingDropsMomentum(PlainReplica):
    """state() moves the optimizer's state out instead of copying it."""

    def state(self) -> dict[str, Array]:
        made = super().state()
        self.optimizer.load_state({})
        return made


@fault("loaded-state-is-shared", GIVEN, cause="works-in-callers-arrays")
class TrainsInLoadedState(PlainReplica):
    """After load_state training goes on in the arrays of the state, which a second load finds changed."""

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
    """Two zero_grads after one another leave the hooks disarmed."""

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


@fault(
    "zeros-become-none",
    ANY,
    cause="gradients-taken-by",
)
class ZerosBecomeNone(PlainReplica):
    """Both forms of zero_grad are one: gradients are dropped where zeros were asked for."""

    def zero_gradients(self) -> None:
        self.zero_grad()


@fault("zeros-of-the-first-bucket", ANY, cause="gradient-not-reset")
class ZerosInTheFirstBucket(PlainReplica):
    """zero_gradients fills the first of two buckets with zeros, and leaves the other as it is."""

    def zero_gradients(self) -> None:
        kept = self._shown()
        super().zero_gradients()
        names = list(kept)
        self.synced |= {name: kept[name] for name in names[len(names) // 2 :]}


@fault("unfreezing-after-resume", ANY, cause="not-reduced")
class HooksOfTheCheckpoint(PlainReplica):
    """load_state hooks the parameters that learn at that time: what is unfrozen after it stays local."""

    hooked: frozenset[str] | None = None

    def load_state(self, state: Mapping[str, Array]) -> None:
        super().load_state(state)
        self.hooked = frozenset(self.network.learned)

    def reduce(self, name: str, gradient: Array) -> Array:
        return super().reduce(name, gradient) if self.hooked is None or name in self.hooked else gradient


@fault("freezing-forgets-momentum", ANY, UNFROZEN, cause="optimizer-state-lost")
class FreezingRebuildsOptimizer(PlainReplica):
    """Freezing a layer makes a new optimizer for those that are left: their momentum is lost."""

    def set_trainable(self, layers: Sequence[str], trainable: bool) -> None:
        super().set_trainable(layers, trainable)
        if not trainable and self.optimizer.state():
            self.optimizer.load_state({})


@fault("batch-size-of-the-checkpoint", ANY, cause="wrong-divisor")
class BatchSizeOfCheckpoint(PlainReplica):
    """The batch size is saved, too: what is resumed takes the mean over a batch with it, whatever size batches have now."""

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
    """The gradient of a batch is taken from a cache if one with its first sample was seen before: right in one epoch."""

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


@fault(
    "inner-no-sync-ends-the-outer",
    ANY,
    cause="synchronised-inside-no-sync",
)
class InnerEndsOuter(PlainReplica):
    """Leaving an inner no_sync switches synchronisation on again, though the outer one is still open."""

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        self.syncing = False
        try:
            yield
        finally:
            self.syncing = True


@fault("evaluation-ends-no-sync", ANY, cause="synchronised-inside-no-sync")
class EvaluationEndsWindow(PlainReplica):
    """After a prediction the replica goes back to training mode, and to synchronising."""

    def predict(self, batch: Batch) -> Array:
        made = super().predict(batch)
        self.syncing = True
        return made


@fault("saving-ends-the-window", ANY, cause="gradients-taken-by")
class SavingEndsWindow(PlainReplica):
    """state() drops what was gathered inside no_sync, so that no local value gets into a checkpoint."""

    def state(self) -> dict[str, Array]:
        if not self.syncing:
            self.local = {}
        return super().state()


@fault("clip-norm-kept-for-the-window", ANY, cause="norm-stale")
class NormOfTheFirstClip(PlainReplica):
    """The norm is measured once between two zero_grads: a second clip, and one of further gradients, takes the old one."""

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


@fault("loading-fills-missing-state", ANY, cause="momentum-of-other-parameter")
class FillsMissingState(PlainReplica):
    """load_state gives a parameter without optimizer state the state of the first one of its shape."""

    def load_state(self, state: Mapping[str, Array]) -> None:
        filled = dict(state)
        for name, array in self.network.parameters.items():
            for key, value in state.items():
                what, _, other = key.removeprefix("optimizer.").partition(".")
                alike = key.startswith("optimizer.") and self.network.parameters[other].shape == array.shape
                if alike and name in self.network.learned:
                    filled.setdefault(f"optimizer.{what}.{name}", value)
        super().load_state(filled)


@fault("saving-counts-local-as-reduced", ANY, cause="accumulated-not-reduced")
class SavingFoldsWindow(PlainReplica):
    """state() adds what was gathered inside no_sync to the reduced gradients, so that it is never reduced itself."""

    def state(self) -> dict[str, Array]:
        if self.synced and self.local:
            self.synced, self.local = added(self.synced, self.local), {}
        return super().state()


@fault("window-has-four-micro-batches", ANY, cause="synchronised-inside-no-sync")
class WindowOfFour(PlainReplica):
    """A buffer holds four micro-batches, and is reduced when it is full, inside no_sync too."""

    gathered = 0

    def backward(self, batch: Batch) -> float:
        loss = super().backward(batch)
        self.gathered = 0 if self.syncing else self.gathered + 1
        if self.gathered == 4:
            self.gathered = 0
            self.synchronise(len(batch.inputs))
        return loss
