"""Replicas whose operations are right alone, but spoil the result of an earlier operation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.models.spec import ModelSpec
from ddpcheck.seeded_values import Array

from ..base import PROMISED, PlainReplica, added, fault
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.replicas import in_place_of, result, squares, usual_factor
from .nonfinite import SKIPPED, LossScaling
from .programs import ANY
from .two_forwards import BOTH

CLIPPING = "check_clipping_uses_the_global_gradient_norm"


@fault("second-step-skipped", ANY, cause="not-updated")
class SkipsSecondStep(PlainReplica):
    """step() does nothing if there was no backward since the last step."""

    fresh = False

    def backward(self, batch: Batch) -> float:
        self.fresh = True
        return super().backward(batch)

    def zero_gradients(self) -> None:
        super().zero_gradients()
        self.fresh = True

    def step(self) -> None:
        if self.fresh:
            super().step()
        self.fresh = False


@fault("zeros-end-with-the-next-backward", ANY, cause="zeros-for-unused")
class ForgetsZeros(PlainReplica):
    """After zero_gradients(), a backward that does not use a parameter turns its zero gradient into None."""

    zeros: frozenset[str] = frozenset()

    def zero_gradients(self) -> None:
        super().zero_gradients()
        self.zeros = frozenset(self.synced)

    def zero_grad(self) -> None:
        super().zero_grad()
        self.zeros = frozenset()

    def synchronise(self, batch_size: int) -> None:
        self.synced = {name: gradient for name, gradient in self.synced.items() if name not in self.zeros}
        self.zeros = frozenset()
        super().synchronise(batch_size)


@fault("saving-takes-clipping-back", ANY, cause="changes-gradients")
class SavingTakesClippingBack(PlainReplica):
    """state() restores gradients to their values before clipping."""

    reduced: Mapping[str, Array] | None = None

    def clip(self, max_norm: float) -> float:
        self.reduced = dict(self.synced)
        return super().clip(max_norm)

    def backward(self, batch: Batch) -> float:
        self.reduced = None
        return super().backward(batch)

    def zero_grad(self) -> None:
        super().zero_grad()
        self.reduced = None

    def state(self) -> dict[str, Array]:
        self.synced = dict(self.synced if self.reduced is None else self.reduced)
        return super().state()


@fault("step-takes-what-was-clipped", ANY, cause="last-micro-batch-missing")
class StepTakesClipped(PlainReplica):
    """step() uses copies made by clip(), which lack gradients accumulated after it."""

    clipped: Mapping[str, Array] | None = None

    def clip(self, max_norm: float) -> float:
        norm = super().clip(max_norm)
        self.clipped = self._shown()
        return norm

    def zero_grad(self) -> None:
        super().zero_grad()
        self.clipped = None

    def step(self) -> None:
        self.optimizer.step(self._shown() if self.clipped is None else self.clipped)
        self.clipped = None


@fault("views-of-another-layout", ANY, cause="other-parameters-gradient")
class ViewsOfAnotherLayout(PlainReplica):
    """Gradients are views of one buffer; a parameter used later overwrites another one's gradient."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        parameters = [*self.network.parameters.values()]
        self.flat = np.zeros(sum(array.size for array in parameters), parameters[0].dtype)

    def synchronise(self, batch_size: int) -> None:
        super().synchronise(batch_size)
        end = 0
        for name in self.network.learned:
            if name in self.synced:
                start, end = end, end + self.synced[name].size
                place = self.flat[start:end].reshape(self.synced[name].shape)
                place[...] = self.synced[name]
                self.synced[name] = place


@in_place_of("backward_of_both")
def both_batches_as_one(replica: PlainReplica, first: Batch, second: Batch) -> float:
    """Use twice the mean over both batches for the sum of two means."""
    arrays = [np.concatenate(pair) for pair in ((first.inputs, second.inputs), (first.targets, second.targets))]
    before, replica.local = replica.local, {}
    with replica.no_sync():
        loss = replica.backward(replace(first, inputs=arrays[0], targets=arrays[1]))
    replica.local = added(before, {name: gradient * 2 for name, gradient in replica.local.items()})
    replica.synchronise(len(arrays[0]))
    return 2 * loss


@fault("momentum-of-an-earlier-replica", ANY, cause="first-update-has-state")
class MomentumOfTheClass(PlainReplica):
    """Momentum is stored in the class, so a new replica of equal shapes starts with old momentum."""

    kept: ClassVar[dict[object, dict[str, Array]]] = {}

    def step(self) -> None:
        shapes = tuple((name, array.shape, array.dtype) for name, array in self.network.parameters.items())
        velocity = getattr(self.optimizer, "_velocity", {})
        if not velocity:
            velocity |= self.kept.get((self.rank, shapes), {})
        super().step()
        self.kept[self.rank, shapes] = velocity


@in_place_of("clip")
def halves_clipped_apart(replica: PlainReplica, max_norm: float) -> float:
    """Clip each half by its own norm, and return the norm of all."""
    shown = replica._shown()
    names = list(shown)
    found = []
    for group in (names[: len(names) // 2], names[len(names) // 2 :]):
        found.append(squares(shown[name] for name in group))
        factor = usual_factor(max_norm, found[-1] ** 0.5)
        replica.synced |= {name: np.asarray(replica.synced[name] * factor, shown[name].dtype) for name in group}
    return float(sum(found) ** 0.5)


@result("backward")
def loss_in_float32(replica: PlainReplica, loss: float) -> float:
    return float(np.float32(loss))


@fault("skipped-step-is-saved", SKIPPED, cause="skip-leaves-state", skips_nonfinite=True)
class SkippedStepIsSaved(LossScaling):
    """A replica that resumes after a skipped step skips its first step."""

    overflow = False

    def finite(self) -> bool:
        again, self.overflow = self.overflow, not super().finite()
        return not (again and self.resumed) and not self.overflow

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self.resumed = False

    def step(self) -> None:
        super().step()
        self.resumed = False

    def state(self) -> dict[str, Array]:
        return {**super().state(), "overflow": np.array(self.overflow)}

    def load_state(self, state: Mapping[str, Array]) -> None:
        super().load_state({name: value for name, value in state.items() if name != "overflow"})
        self.overflow, self.resumed = bool(state["overflow"]), True


# fmt: off
table(
    globals(),
    Fault("both-forwards-as-one-batch",
          "Two forward passes are computed as one batch, with twice its mean as the loss.",
          where=always, effect=both_batches_as_one,
          caught_by=BOTH, cause="wrong-forward-values", two_forwards=True,
          model_features=PROMISED.replica.model_features - {"batch_norm"}),
    Fault("groups-clipped-apart", "Two halves of the parameters are clipped separately, each by its own norm.",
          where=always, effect=halves_clipped_apart,
          caught_by=CLIPPING, cause="clipped-by-groups"),
    Fault("loss-in-float32", "backward() returns the loss rounded to float32.",
          where=always, effect=loss_in_float32,
          caught_by="check_gradients_equal_the_large_batch_within_rounding", cause="fewer-bits"),
)
# fmt: on
