"""What goes wrong on few occasions: at some steps or numbers of ranks, past a size or a count, in a state that few programs
come to.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.models.spec import ModelSpec
from ddpcheck.values import Array

from ..base import PlainReplica, fault
from ..engine.circumstances import Circumstance, always
from ..engine.fault import Fault, table
from ..engine.gradients import Gradient, every_step, giving, instead, own_value, scaled, sending, unused_here, world_of

EXACT = "check_gradients_equal_the_large_batch_exactly"
REAL = "check_gradients_equal_the_large_batch_within_rounding"
ANY = "check_random_training_programs_match_one_process"
RESUMED = "check_resumed_training_matches_one_process"


past_a_power_of_two = Circumstance(
    "a rank past a power of two", lambda gradient: gradient.rank >= 1 << (gradient.world.bit_length() - 1)
)


@sending
def nothing_sent(gradient: Gradient) -> Array:
    return np.zeros_like(gradient.array)


@instead
def mean_of_two_of_four(gradient: Gradient) -> Array:
    """The second round of recursive doubling is left out."""
    first, second = gradient.gathered().reshape(2, 2, *gradient.array.shape)[gradient.rank // 2]
    return np.asarray((first + second) / 2)


@giving
def below_a_millionth_is_zero(gradient: Gradient, mean: Array) -> Array:
    return np.where(abs(mean) < 1e-6, 0, mean)


@giving
def clamped_to_float16(gradient: Gradient, mean: Array) -> Array:
    """NaN and infinities stay."""
    return np.where(np.isfinite(mean), np.clip(mean, -65504, 65504), mean)


@fault(
    "flags-in-64-bits",
    "check_globally_unused_parameters_have_promised_gradient",
    cause="zero-for-none",
)
class FlagsIn64Bits(PlainReplica):
    """A mask of 64 bits says which parameters have a gradient: that of number n, and of n + 64, and of n + 128."""

    def used_somewhere(self) -> list[str]:
        flags = np.zeros(64)
        for number, name in enumerate(self.network.learned):
            flags[number % 64] += name in self.local
        used = self.comm.all_reduce(flags)
        return [name for number, name in enumerate(self.network.learned) if used[number % 64]]


@fault(
    "broadcast-up-to-a-size",
    "check_construction_broadcasts_parameters_from_rank_0",
    cause="own-initial-value",
)
class BroadcastCut(PlainReplica):
    """One message broadcasts a parameter at construction: what does not fit in stays what it was."""

    def start(self, model: ModelSpec) -> None:
        for array in self.network.tensors.values():
            flat = array.reshape(-1)
            flat[: 1 << 17] = self.comm.broadcast(flat[: 1 << 17])


@fault("zero-grad-ends-no-sync", ANY, cause="synchronised-inside-no-sync")
class ZeroGradEndsNoSync(PlainReplica):
    """zero_grad makes all ready for a next step, synchronisation included."""

    def zero_grad(self) -> None:
        super().zero_grad()
        self.syncing = True


@fault(
    "empty-batch-clears-the-window",
    "check_gradients_inside_no_sync_are_local",
    cause="last-micro-batch-only",
)
class EmptyBatchClears(PlainReplica):
    """A rank without samples sets its gradients to zero, those that it gathered before included."""

    def backward(self, batch: Batch) -> float:
        if not len(batch.inputs):
            self.local = {}
        return super().backward(batch)


@fault(
    "predicts-in-training-mode-inside-no-sync",
    "check_predict_uses_the_running_statistics",
    cause="evaluation-moves-statistics",
)
class TrainsInsideNoSync(PlainReplica):
    """Inside no_sync a prediction goes the way of training."""

    def predict(self, batch: Batch) -> Array:
        if self.syncing:
            return super().predict(batch)
        return self.network._forward(batch.inputs, batch.branches, training=True)


@fault("predicts-with-packed-weights", ANY, cause="wrong-prediction-values")
class PackedWeights(PlainReplica):
    """Predictions use a copy of the weights, laid out for speed: made anew after each step, but not after loading."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self.packed = self.parameters()

    def step(self) -> None:
        super().step()
        self.packed = self.parameters()

    def predict(self, batch: Batch) -> Array:
        now = self.parameters()
        self._use(self.packed)
        try:
            return super().predict(batch)
        finally:
            self._use(now)

    def _use(self, weights: Mapping[str, Array]) -> None:
        for name, array in self.network.parameters.items():
            array[...] = weights[name]


@fault(
    "step-without-gradients-repeats",
    "check_globally_unused_parameters_do_not_move",
    cause="updated-twice",
)
class RepeatsStep(PlainReplica):
    """A step without any gradient takes those of the step before, which its buffer still holds."""

    def step(self) -> None:
        self.taken = self._shown() or getattr(self, "taken", {})
        self.optimizer.step(self.taken)


@fault("one-count-of-steps-is-loaded", ANY, cause="adam-steps-of-other")
class OneCount(PlainReplica):
    """A checkpoint has one count of steps: after loading all parameters have that of the first."""

    def load_state(self, state: Mapping[str, Array]) -> None:
        counts = [value for name, value in state.items() if name.startswith("optimizer.steps.")]
        first = {name: counts[0] for name in state if name.startswith("optimizer.steps.")}
        super().load_state({**state, **first})


@fault(
    "squares-summed-over-ranks",
    "check_clipping_uses_the_global_gradient_norm",
    cause="norm-summed-over-ranks",
)
class SquaresSummed(PlainReplica):
    """The norm is put together of all ranks, as for gradients in shards; here each rank holds all of them."""

    def clip(self, max_norm: float) -> float:
        own = sum(float(np.sum(np.square(gradient, dtype=np.float64))) for gradient in self._shown().values())
        norm = float(np.sqrt(self.comm.all_reduce(np.array([own]))[0]))
        self.scale(min(1.0, max_norm / norm) if norm else 1.0)
        return norm


@fault(
    "predicts-in-training-mode-in-float64",
    "check_predict_uses_the_running_statistics",
    cause="evaluation-moves-statistics",
)
class TrainsInFloat64(PlainReplica):
    """There is a fast way to predict for float32, and none else: the training's is taken."""

    def predict(self, batch: Batch) -> Array:
        if next(iter(self.network.parameters.values())).dtype == np.float32:
            return super().predict(batch)
        return self.network._forward(batch.inputs, batch.branches, training=True)


@fault(
    "momentum-not-saved-at-the-third-step",
    RESUMED,
    cause="optimizer-state-lost",
)
class NotSavedAtTheThird(PlainReplica):
    """Momentum is written out every third step, and is not there for who saves just then."""

    steps = 0

    def step(self) -> None:
        super().step()
        self.steps += 1

    def state(self) -> dict[str, Array]:
        lost = "optimizer.velocity" if self.steps == 3 else "none"
        return {name: value for name, value in super().state().items() if not name.startswith(lost)}


@fault("steps-one-gradient-late", RESUMED, cause="update-gradient-stale")
class OneGradientLate(PlainReplica):
    """After a save the optimizer works on its own, and takes the gradients that it was handed a step ago."""

    taken: Mapping[str, Array] | None = None

    def state(self) -> dict[str, Array]:
        self.taken = self.taken or {}
        return super().state()

    def step(self) -> None:
        given = self._shown()
        self.optimizer.step(self.taken or given)
        self.taken = None if self.taken is None else given


# fmt: off
table(
    globals(),
    Fault("every-eighth-step-is-local", where=every_step(8), effect=own_value,
          caught_by="check_gradients_stay_exact_after_many_backwards", cause="updated-by-own-gradient"),
    Fault("no-part-for-the-odd-rank", where=past_a_power_of_two, effect=nothing_sent,
          caught_by=EXACT, cause="ranks-missing", world_size=3),
    Fault("halves-never-meet", where=world_of(4), effect=mean_of_two_of_four,
          caught_by=EXACT, cause="mean-of-some-ranks", world_size=4),
    Fault("small-gradients-flushed", where=always, effect=below_a_millionth_is_zero,
          caught_by=REAL, cause="flushed-to-zero"),
    Fault("large-gradients-clamped", where=always, effect=clamped_to_float16, caught_by=REAL, cause="clamped"),
    Fault("a-thousandth-too-large", where=always, effect=scaled(1.001),
          caught_by=EXACT, cause="wrong-factor"),
    Fault("zeros-of-the-unused-stay", where=unused_here, effect=own_value,
          caught_by="check_unused_parameters_on_some_ranks_count_as_zero", cause="others-parts-missing"),
)
# fmt: on
