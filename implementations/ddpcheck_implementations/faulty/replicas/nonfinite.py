"""Replicas that hide NaN and infinities, or that notice them on some ranks only."""

from __future__ import annotations

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.seeded_values import Array

from ..base import PlainReplica, added, fault
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.gradients import Gradient, giving, instead, sending
from ..engine.replicas import in_place_of

SKIPPED = "check_nonfinite_step_is_skipped_on_all_ranks"
HIDDEN = "check_nonfinite_gradients_reach_every_rank"


@giving
def nonfinite_mean_is_zero(gradient: Gradient, mean: Array) -> Array:
    return np.nan_to_num(mean, posinf=0.0, neginf=0.0)


@sending
def nonfinite_sent_as_zero(gradient: Gradient) -> Array:
    return np.where(np.isfinite(gradient.array), gradient.array, gradient.array.dtype.type(0))


@instead
def mean_of_the_finite(gradient: Gradient) -> Array:
    """Average each element over the ranks with a finite value."""
    comm, array, finite = gradient.replica.comm, gradient.array, np.isfinite(gradient.array)
    counts = comm.all_reduce(np.asarray(finite, array.dtype))
    return np.asarray(comm.all_reduce(np.where(finite, array, array.dtype.type(0))) / np.maximum(counts, 1))


class LossScaling(PlainReplica):
    """Correct: gradients are scaled for the reduction, and all ranks skip a step together."""

    loss_scale = 1024.0

    def reduce(self, name: str, gradient: Array) -> Array:
        factor = gradient.dtype.type(self.loss_scale)
        return np.asarray(super().reduce(name, gradient * factor) / factor)

    def step(self) -> None:
        if self.finite():
            super().step()
        else:
            self.skip()

    def finite(self) -> bool:
        return all(np.isfinite(gradient).all() for gradient in self.synced.values())

    def skip(self) -> None:
        self.loss_scale /= 2


@fault("finite-told-by-the-sum", SKIPPED, cause="skipped-though-finite", skips_nonfinite=True)
class FiniteBySum(LossScaling):
    """A step is skipped if the sum of a gradient is not finite: large elements overflow in it."""

    loss_scale = 1.0

    def finite(self) -> bool:
        with np.errstate(over="ignore", invalid="ignore"):
            return all(np.isfinite(gradient.sum(dtype=gradient.dtype)) for gradient in self.synced.values())


loss_scaling = fault("loss-scaling", skips_nonfinite=True)(LossScaling)


@fault(
    "loss-scale-per-rank",
    SKIPPED,
    seen_in=("pytorch/pytorch#136009", "NVIDIA-NeMo/Megatron-Bridge#5591"),
    cause="loss-scales-apart",
    skips_nonfinite=True,
)
class ScalePerRank(LossScaling):
    """Each rank halves its loss scale only when its own gradient overflows."""

    def synchronise(self, batch_size: int) -> None:
        overflow = not all(np.isfinite(gradient).all() for gradient in self.local.values())
        super().synchronise(batch_size)
        self.loss_scale /= 2 if overflow else 1

    def skip(self) -> None:
        pass


@fault("step-skipped-on-one-rank", SKIPPED, cause="skip-decided-per-rank", skips_nonfinite=True)
class SkipsAlone(LossScaling):
    """Each rank decides by its own gradient whether to skip the step."""

    overflow = False

    def synchronise(self, batch_size: int) -> None:
        self.overflow = not all(np.isfinite(gradient).all() for gradient in self.local.values())
        super().synchronise(batch_size)

    def finite(self) -> bool:
        return not self.overflow


@in_place_of("skip")
def stepped_with_zeros(replica: PlainReplica) -> None:
    replica.optimizer.step({name: np.zeros_like(gradient) for name, gradient in replica.synced.items()})


@in_place_of("skip")
def optimizer_state_moved(replica: PlainReplica) -> None:
    """Parameters do not change."""
    before = replica.parameters()
    replica.optimizer.step({name: np.zeros_like(gradient) for name, gradient in replica.synced.items()})
    for name, value in before.items():
        replica.network.parameters[name][...] = value


@fault("step-skipped-by-loss", SKIPPED, cause="nonfinite-step-taken", skips_nonfinite=True)
class DecidedByLoss(LossScaling):
    """Steps are skipped if a loss is not finite; gradients are not checked."""

    def backward(self, batch: Batch) -> float:
        loss = super().backward(batch)
        self.losses = self.comm.all_reduce(np.array([loss]))
        return loss

    def finite(self) -> bool:
        return bool(np.isfinite(self.losses).all())


@fault("nan-checked-in-last-micro-batch-only", SKIPPED, cause="nonfinite-step-taken", skips_nonfinite=True)
class LastMicroBatchOnly(LossScaling):
    """Only the last micro-batch is checked for NaN and infinities."""

    def synchronise(self, batch_size: int) -> None:
        before, self.synced = self.synced, {}
        super().synchronise(batch_size)
        self.fits = super().finite()
        self.synced = added(before, self.synced)

    def finite(self) -> bool:
        return self.fits


@fault("nan-not-checked-after-clipping", SKIPPED, cause="nonfinite-step-taken", skips_nonfinite=True)
class UncheckedAfterClip(LossScaling):
    """After clipping, step() does not check gradients for NaN and infinities."""

    clipped = False

    def clip(self, max_norm: float) -> float:
        self.clipped = True
        return super().clip(max_norm)

    def step(self) -> None:
        super().step()
        self.clipped = False

    def finite(self) -> bool:
        return self.clipped or super().finite()


@fault("nan-checked-in-last-gradients-only", SKIPPED, cause="nonfinite-step-taken", skips_nonfinite=True)
class CameLastOnly(LossScaling):
    """Only gradients of the last backward are checked for NaN and infinities."""

    def synchronise(self, batch_size: int) -> None:
        self.brought = self.used_somewhere()
        super().synchronise(batch_size)

    def finite(self) -> bool:
        return all(np.isfinite(self.synced[name]).all() for name in self.brought)


@in_place_of("finite")
def first_gradient_looked_at(replica: PlainReplica) -> bool:
    return bool(np.isfinite(replica.synced[replica.network.learned[0]]).all())


@fault("third-nonfinite-step-taken", SKIPPED, cause="nonfinite-step-taken", skips_nonfinite=True)
class SkipsOnce(LossScaling):
    """The step after a skipped step is always taken."""

    skipped = False

    def finite(self) -> bool:
        self.skipped = not super().finite() and not self.skipped
        return not self.skipped


@fault("overflow-outlives-zero-grad", SKIPPED, cause="not-updated", skips_nonfinite=True)
class OutlivesZeroGrad(LossScaling):
    """zero_grad() does not clear the mark of a non-finite backward, so the next step is skipped."""

    overflow = False

    def synchronise(self, batch_size: int) -> None:
        super().synchronise(batch_size)
        self.overflow = self.overflow or not super().finite()

    def finite(self) -> bool:
        overflow, self.overflow = self.overflow, False
        return not overflow


@in_place_of("finite")
def largest_elements_looked_at(replica: PlainReplica) -> bool:
    """The maximum does not show minus infinity."""
    return all(float(np.max(gradient, initial=-np.inf)) < np.inf for gradient in replica._shown().values())


# fmt: off
table(
    globals(),
    Fault("nan-zeroed-in-reduction", "NaN and infinities in the mean gradient are replaced by 0.",
          where=always, effect=nonfinite_mean_is_zero,
          caught_by=HIDDEN, cause="nonfinite-replaced"),
    Fault("overflowed-rank-sends-zeros", "A rank sends 0 for each NaN or infinity in its gradient.",
          where=always, effect=nonfinite_sent_as_zero,
          caught_by=HIDDEN, cause="nonfinite-replaced"),
    Fault("overflowed-rank-left-out", "Ranks with a NaN or infinity are left out of the mean.",
          where=always, effect=mean_of_the_finite,
          caught_by=HIDDEN, cause="nonfinite-replaced"),
    Fault("skipped-step-applies-momentum", "A skipped step still applies momentum and weight decay.",
          where=always, effect=stepped_with_zeros.of(LossScaling),
          caught_by=SKIPPED, cause="nonfinite-decided-in-parts", skips_nonfinite=True),
    Fault("skipped-step-counted", "A skipped step still updates momentum and the step count.",
          where=always, effect=optimizer_state_moved.of(LossScaling),
          caught_by=SKIPPED, cause="skip-leaves-state", skips_nonfinite=True),
    Fault("nan-checked-in-first-parameter-only",
          "Only the first parameter's gradient is checked for NaN and infinities.",
          where=always, effect=first_gradient_looked_at.of(LossScaling),
          caught_by=SKIPPED, cause="nonfinite-step-taken", skips_nonfinite=True),
    Fault("negative-infinity-is-finite",
          "The check for infinities looks at the largest element only, so minus infinity passes.",
          where=always, effect=largest_elements_looked_at.of(LossScaling),
          caught_by=SKIPPED, cause="nonfinite-step-taken", skips_nonfinite=True),
)
# fmt: on
