"""NaN and infinities that are hidden, or that one rank knows of and the others do not."""

from __future__ import annotations

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.values import Array

from ..base import PlainReplica, added, fault

SKIPPED = "check_nonfinite_step_is_skipped_on_all_ranks"
HIDDEN = "check_nonfinite_gradients_reach_every_rank"


@fault("nan-zeroed-in-reduction", HIDDEN, cause="nonfinite-replaced")
class NanToZero(PlainReplica):
    """The reduced gradient goes through nan_to_num."""

    def reduce(self, name: str, gradient: Array) -> Array:
        return np.nan_to_num(super().reduce(name, gradient), posinf=0.0, neginf=0.0)


@fault("overflowed-rank-sends-zeros", HIDDEN, cause="nonfinite-replaced")
class SendsZeros(PlainReplica):
    """NaN and infinities of a rank's own gradient count as zero."""

    def reduce(self, name: str, gradient: Array) -> Array:
        return super().reduce(name, np.where(np.isfinite(gradient), gradient, gradient.dtype.type(0)))


@fault("overflowed-rank-left-out", HIDDEN, cause="nonfinite-replaced")
class LeftOut(PlainReplica):
    """The mean is that of the ranks whose gradient is finite."""

    def reduce(self, name: str, gradient: Array) -> Array:
        finite = np.isfinite(gradient)
        counts = self.comm.all_reduce(np.asarray(finite, gradient.dtype))
        total = self.comm.all_reduce(np.where(finite, gradient, gradient.dtype.type(0)))
        return np.asarray(total / np.maximum(counts, 1), gradient.dtype)


class LossScaling(PlainReplica):
    """Gradients are scaled for the reduction; a step that is not finite is skipped, and all ranks halve the scale."""

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


loss_scaling = fault("loss-scaling", skips_nonfinite=True)(LossScaling)


@fault(
    "loss-scale-per-rank",
    SKIPPED,
    seen_in=("pytorch/pytorch#136009", "NVIDIA-NeMo/Megatron-Bridge#5591"),
    cause="loss-scales-apart",
    skips_nonfinite=True,
)
class ScalePerRank(LossScaling):
    """Each rank halves its own scale when its own gradient overflows."""

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


@fault("skipped-step-applies-momentum", SKIPPED, cause="nonfinite-decided-in-parts", skips_nonfinite=True)
class StepsWithZeros(LossScaling):
    """The step is taken all the same, with gradients of zero."""

    def skip(self) -> None:
        self.optimizer.step({name: np.zeros_like(gradient) for name, gradient in self.synced.items()})


@fault("skipped-step-counted", SKIPPED, cause="skip-leaves-state", skips_nonfinite=True)
class CountsSkipped(LossScaling):
    """A skipped step leaves parameters alone, but not the optimizer's momentum and count of steps."""

    def skip(self) -> None:
        before = self.parameters()
        self.optimizer.step({name: np.zeros_like(gradient) for name, gradient in self.synced.items()})
        for name, value in before.items():
            self.network.parameters[name][...] = value


@fault("step-skipped-by-loss", SKIPPED, cause="nonfinite-step-taken", skips_nonfinite=True)
class DecidedByLoss(LossScaling):
    """Steps are skipped where some rank's loss is not finite, whatever the gradients are."""

    def backward(self, batch: Batch) -> float:
        loss = super().backward(batch)
        self.losses = self.comm.all_reduce(np.array([loss]))
        return loss

    def finite(self) -> bool:
        return bool(np.isfinite(self.losses).all())


@fault("nan-checked-in-last-micro-batch-only", SKIPPED, cause="nonfinite-step-taken", skips_nonfinite=True)
class LastMicroBatchOnly(LossScaling):
    """Each backward says anew whether its gradients are finite, and the step heeds the last."""

    def synchronise(self, batch_size: int) -> None:
        before, self.synced = self.synced, {}
        super().synchronise(batch_size)
        self.fits = super().finite()
        self.synced = added(before, self.synced)

    def finite(self) -> bool:
        return self.fits


@fault("nan-not-checked-after-clipping", SKIPPED, cause="nonfinite-step-taken", skips_nonfinite=True)
class UncheckedAfterClip(LossScaling):
    """Clipping unscales the gradients, and the step takes them for looked at."""

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
    """Those gradients are looked at that the last backward brought; others have been there before."""

    def synchronise(self, batch_size: int) -> None:
        self.brought = self.used_somewhere()
        super().synchronise(batch_size)

    def finite(self) -> bool:
        return all(np.isfinite(self.synced[name]).all() for name in self.brought)


@fault("nan-checked-in-first-parameter-only", SKIPPED, cause="nonfinite-step-taken", skips_nonfinite=True)
class FirstParameterOnly(LossScaling):
    """The first gradient is looked at, which everything that goes wrong should reach."""

    def finite(self) -> bool:
        return bool(np.isfinite(self.synced[self.network.learned[0]]).all())


@fault("third-nonfinite-step-taken", SKIPPED, cause="nonfinite-step-taken", skips_nonfinite=True)
class SkipsOnce(LossScaling):
    """After a step that was skipped the next one is taken whatever it holds."""

    skipped = False

    def finite(self) -> bool:
        self.skipped = not super().finite() and not self.skipped
        return not self.skipped


@fault("overflow-outlives-zero-grad", SKIPPED, cause="not-updated", skips_nonfinite=True)
class OutlivesZeroGrad(LossScaling):
    """A backward notes that its gradients are not finite, and only the next step forgets it."""

    overflow = False

    def synchronise(self, batch_size: int) -> None:
        super().synchronise(batch_size)
        self.overflow = self.overflow or not super().finite()

    def finite(self) -> bool:
        overflow, self.overflow = self.overflow, False
        return not overflow


@fault("negative-infinity-is-finite", SKIPPED, cause="nonfinite-step-taken", skips_nonfinite=True)
class PositiveOnly(LossScaling):
    """The largest element is compared with infinity: one that is minus infinity is the smallest."""

    def finite(self) -> bool:
        largest = [float(np.max(gradient, initial=-np.inf)) for gradient in self._shown().values()]
        return all(largest_one < np.inf for largest_one in largest)
