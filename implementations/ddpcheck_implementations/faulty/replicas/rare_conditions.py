"""Replicas that are wrong at some steps, world sizes, tensor sizes or states only."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.models.spec import ModelSpec
from ddpcheck.seeded_values import Array

from ..base import PlainReplica, fault
from ..engine.circumstances import Circumstance, always, larger
from ..engine.fault import Fault, table
from ..engine.gradients import Gradient, every_step, giving, instead, own_value, scaled, sending, unused_here, world_of
from ..engine.replicas import (
    Tensor,
    after,
    before,
    clipped_by,
    constructing,
    in_place_of,
    inside_no_sync,
    loading,
    local_gradients_dropped,
    model_of,
    no_sync_ended,
    not_saved,
    predicted_in_training_mode,
    squares,
    steps_taken,
    without_samples,
)

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
    """Recursive doubling without its second round."""
    first, second = gradient.gathered().reshape(2, 2, *gradient.array.shape)[gradient.rank // 2]
    return np.asarray((first + second) / 2)


@giving
def below_a_millionth_is_zero(gradient: Gradient, mean: Array) -> Array:
    return np.where(abs(mean) < 1e-6, 0, mean)


@giving
def clamped_to_float16(gradient: Gradient, mean: Array) -> Array:
    """NaN and infinities are unchanged."""
    return np.where(np.isfinite(mean), np.clip(mean, -65504, 65504), mean)


@in_place_of("used_somewhere")
def flags_in_64_bits(replica: PlainReplica) -> list[str]:
    """Parameters n, n + 64, n + 128, ... share one flag."""
    flags = np.zeros(64)
    for number, name in enumerate(replica.network.learned):
        flags[number % 64] += name in replica.local
    used = replica.comm.all_reduce(flags)
    return [name for number, name in enumerate(replica.network.learned) if used[number % 64]]


@constructing
def first_piece_broadcast(tensor: Tensor) -> None:
    """Elements past the first message are not broadcast."""
    flat = tensor.array.reshape(-1)
    flat[: 1 << 17] = tensor.of_rank_0(flat[: 1 << 17])


@fault("predicts-with-packed-weights", ANY, cause="wrong-prediction-values")
class PackedWeights(PlainReplica):
    """predict() uses a packed copy of the weights, which load_state() does not refresh."""

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
    """A step without gradients applies those of the previous step again."""

    def step(self) -> None:
        self.taken = self._shown() or getattr(self, "taken", {})
        self.optimizer.step(self.taken)


def first_count_of_steps(replica: PlainReplica, state: Mapping[str, Array]) -> dict[str, Array]:
    """The first parameter's step count, for all parameters."""
    counts = {name: value for name, value in state.items() if name.startswith("optimizer.steps.")}
    return dict.fromkeys(counts, next(iter(counts.values()))) if counts else {}


def norm_over_ranks(replica: PlainReplica) -> float:
    """Right for sharded gradients; here each rank has all gradients."""
    own = squares(replica._shown().values())
    return float(np.sqrt(replica.comm.all_reduce(np.array([own]))[0]))


@fault("steps-one-gradient-late", RESUMED, cause="update-gradient-stale")
class OneGradientLate(PlainReplica):
    """After state() was called, each step applies the gradients of the previous step."""

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
    Fault("every-eighth-step-is-local", "Every eighth step uses the rank's own gradients.",
          where=every_step(8), effect=own_value,
          caught_by="check_gradients_stay_exact_after_many_backwards", cause="updated-by-own-gradient"),
    Fault("ranks-past-a-power-of-two-send-zeros", "Ranks past a power of two send zeros.",
          where=past_a_power_of_two, effect=nothing_sent,
          caught_by=EXACT, cause="ranks-missing", world_size=3),
    Fault("pairs-of-ranks-averaged-only", "With four ranks, each pair of ranks averages only its own two gradients.",
          where=world_of(4), effect=mean_of_two_of_four,
          caught_by=EXACT, cause="mean-of-some-ranks", world_size=4),
    Fault("small-gradients-flushed", "Gradient elements below one millionth become 0.",
          where=always, effect=below_a_millionth_is_zero,
          caught_by=REAL, cause="flushed-to-zero"),
    Fault("large-gradients-clamped", "Gradient elements are clamped to the range of float16.",
          where=always, effect=clamped_to_float16, caught_by=REAL, cause="clamped"),
    Fault("a-thousandth-too-large", "Gradients are multiplied by 1.001.",
          where=always, effect=scaled(1.001),
          caught_by=EXACT, cause="wrong-factor"),
    Fault("unused-parameter-keeps-zero-gradient",
          "A rank that does not use a parameter keeps a zero gradient instead of the mean.",
          where=unused_here, effect=own_value,
          caught_by="check_unused_parameters_on_some_ranks_count_as_zero", cause="others-parts-missing"),
    Fault("flags-in-64-bits", "Parameters 64 numbers apart share one flag that says whether they are used.",
          where=always, effect=flags_in_64_bits,
          caught_by="check_globally_unused_parameters_have_promised_gradient", cause="zero-for-none"),
    Fault("broadcast-up-to-a-size", "Construction broadcasts only the first 131,072 elements of a tensor.",
          where=larger(1 << 17), effect=first_piece_broadcast,
          caught_by="check_construction_broadcasts_parameters_from_rank_0", cause="own-initial-value"),
    Fault("zero-grad-ends-no-sync", "zero_grad() inside no_sync turns synchronisation on.",
          where=always, effect=after("zero_grad")(no_sync_ended),
          caught_by=ANY, cause="no-sync-ended-by"),
    Fault("empty-batch-clears-the-window", "An empty batch drops the accumulated gradients.",
          where=without_samples, effect=before("backward")(local_gradients_dropped),
          caught_by="check_gradients_inside_no_sync_are_local", cause="last-micro-batch-only"),
    Fault("predicts-in-training-mode-inside-no-sync", "predict() inside no_sync runs in training mode.",
          where=inside_no_sync, effect=predicted_in_training_mode,
          caught_by="check_predict_uses_the_running_statistics", cause="evaluation-moves-statistics"),
    Fault("one-count-of-steps-is-loaded", "A resume gives all parameters the first parameter's step count.",
          where=always, effect=loading(first_count_of_steps),
          caught_by=ANY, cause="adam-steps-of-other"),
    Fault("squares-summed-over-ranks",
          "The clipping norm sums the squares over ranks, although every rank has all gradients.",
          where=always, effect=clipped_by(norm_over_ranks),
          caught_by="check_clipping_uses_the_global_gradient_norm", cause="norm-summed-over-ranks"),
    Fault("predicts-in-training-mode-in-float64", "predict() of a float64 model runs in training mode.",
          where=~model_of("float32"), effect=predicted_in_training_mode,
          caught_by="check_predict_uses_the_running_statistics", cause="evaluation-moves-statistics"),
    Fault("momentum-not-saved-at-the-third-step", "A checkpoint after three steps lacks momentum.",
          where=steps_taken(3), effect=not_saved("optimizer.velocity"),
          caught_by=RESUMED, cause="optimizer-state-lost"),
)
# fmt: on
