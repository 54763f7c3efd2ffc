"""Replicas that are changed by evaluation or saving, or that change arrays of the caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.models.spec import ModelSpec
from ddpcheck.seeded_values import Array

from ..base import PlainReplica, fault
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.replicas import (
    after,
    around,
    before,
    gradients_dropped,
    more_samples,
    optimizer_part,
    predicted_in_training_mode,
    result,
    takes_floats,
)

EVALUATED = "check_predict_does_not_change_training"
STATISTICS = "check_predict_uses_the_running_statistics"
SAVED = "check_saving_does_not_change_training"


@before("predict")
def a_broadcast(replica: PlainReplica, batch: Batch) -> None:
    """A rank that evaluates alone waits for the other ranks."""
    replica.comm.broadcast(np.zeros(1))


@after("predict")
def batches_counted(replica: PlainReplica, batch: Batch) -> None:
    for name, buffer in replica.network.buffers.items():
        if name.endswith("num_batches_tracked"):
            buffer += 1


@before("predict")
def one_sample_at_least(replica: PlainReplica, batch: Batch) -> None:
    """The outputs of pieces are joined, and there is no piece."""
    if not len(batch.inputs):
        raise ValueError("need at least one array to concatenate")


@around("load_state")
def buffers_kept(
    replica: PlainReplica, load_state: Callable[[Mapping[str, Array]], None], state: Mapping[str, Array]
) -> None:
    kept = replica.buffers()
    load_state(state)
    for name, buffer in kept.items():
        replica.network.buffers[name][...] = buffer


@fault("gradients-are-views", seen_in=("pytorch/pytorch#47163",))
class GradientsAreViews(PlainReplica):
    """Correct: gradients() returns the buffers themselves, which the caller reads at once."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.filled = {name: np.zeros_like(self.network.parameters[name]) for name in self.network.parameters}

    def gradients(self) -> dict[str, Array | None]:
        shown = super().gradients()
        for name, gradient in shown.items():
            if gradient is not None:
                self.filled[name][...] = gradient
        return {name: None if shown[name] is None else self.filled[name] for name in shown}


@result("state")
def parameters_themselves(replica: PlainReplica, state: dict[str, Array]) -> dict[str, Array]:
    return state | replica.network.parameters


@after("backward")
def inputs_rounded_in_place(replica: PlainReplica, batch: Batch) -> None:
    """Like inputs that are centred in place and restored."""
    batch.inputs[...] = (batch.inputs + 1) * 1.0000001 - 1


@before("clip")
def every_gradient_expected(replica: PlainReplica, max_norm: float) -> None:
    shown = replica._shown()
    assert all(shown[name].size for name in replica.network.learned)


@result("state")
def adams_moments_themselves(replica: PlainReplica, state: dict[str, Array]) -> dict[str, Array]:
    parts = {part: optimizer_part(replica, part) for part in ("first", "second")}
    return state | {f"optimizer.{part}.{name}": array for part, own in parts.items() for name, array in own.items()}


@after("load_state")
def adams_moments_not_copied(replica: PlainReplica, state: Mapping[str, Array]) -> None:
    for part in ("first", "second"):
        own = optimizer_part(replica, part)
        own.update({name: state[f"optimizer.{part}.{name}"] for name in own})


@result("state")
def buffers_themselves(replica: PlainReplica, state: dict[str, Array]) -> dict[str, Array]:
    return state | replica.network.buffers


@after("load_state")
def optimizer_state_popped(replica: PlainReplica, state: dict[str, Array]) -> None:
    """Remove the optimizer's entries from the caller's mapping."""
    for name in [name for name in state if name.startswith("optimizer.")]:
        state.pop(name)


@fault("predictions-kept-until-the-next-step", STATISTICS, cause="evaluation-uses-other-values")
class PredictionsKept(PlainReplica):
    """Predictions are cached until the next step, although running statistics change before."""

    kept: dict[bytes, Array]

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self.kept = {}

    def predict(self, batch: Batch) -> Array:
        asked = batch.inputs.tobytes() + repr(batch.branches).encode()
        if asked not in self.kept:
            self.kept[asked] = super().predict(batch)
        return self.kept[asked]

    def step(self) -> None:
        super().step()
        self.kept = {}


# fmt: off
table(
    globals(),
    Fault("predicts-for-some-samples-only", "predict() of a batch without samples raises an error.",
          where=always, effect=one_sample_at_least,
          caught_by=EVALUATED, cause="no-samples-not-handled"),
    Fault("evaluation-clears-gradients", "predict() drops all gradients.",
          where=always, effect=before("predict")(gradients_dropped),
          caught_by=EVALUATED, cause="gradients-taken-by"),
    Fault("rank0-only-wrapped-forward", "predict() broadcasts, so a rank that evaluates alone waits forever.",
          where=always, effect=a_broadcast,
          caught_by=EVALUATED, cause="evaluation-communicates", seen_in=("pytorch/pytorch#54059",)),
    Fault("evaluation-moves-statistics", "predict() counts its batch in batch norm's counter.",
          where=always, effect=batches_counted,
          caught_by="check_predict_uses_the_running_statistics", cause="evaluation-moves-statistics"),
    Fault("saving-clears-gradients", "state() drops all gradients.",
          where=always, effect=after("state")(gradients_dropped),
          caught_by=SAVED, cause="gradients-taken-by"),
    Fault("checkpoint-without-statistics", "load_state() does not restore buffers.",
          where=always, effect=buffers_kept,
          caught_by="check_checkpoint_restores_running_statistics", cause="state-not-loaded"),
    Fault("state-is-views", "state() returns the parameters themselves instead of copies.",
          where=always, effect=parameters_themselves,
          caught_by="check_saved_state_is_a_copy", cause="state-is-view"),
    Fault("batch-normalised-in-place", "backward() rounds the caller's inputs in place.",
          where=takes_floats, effect=inputs_rounded_in_place,
          caught_by="check_backward_does_not_change_its_batch", cause="call-changes-batch"),
    Fault("clipping-needs-every-gradient", "Clipping fails if a parameter has no gradient.",
          where=always, effect=every_gradient_expected,
          caught_by="check_clipping_ignores_unused_parameters"),
    Fault("state-shares-moments", "state() returns Adam's moments themselves instead of copies.",
          where=always, effect=adams_moments_themselves,
          caught_by="check_saved_state_is_a_copy", cause="state-is-view"),
    Fault("loaded-moments-are-kept", "load_state() uses the caller's arrays of Adam's moments without copying them.",
          where=always, effect=adams_moments_not_copied,
          caught_by="check_replica_does_not_change_given_arrays", cause="works-in-callers-arrays"),
    Fault("state-shares-statistics", "state() returns the buffers themselves instead of copies.",
          where=always, effect=buffers_themselves,
          caught_by="check_saved_state_is_a_copy", cause="state-is-view"),
    Fault("large-evaluations-normalise-by-their-batch",
          "predict() with more than 32 samples normalises by the batch and updates running statistics.",
          where=more_samples(32), effect=predicted_in_training_mode,
          caught_by="check_predict_uses_the_running_statistics", cause="evaluation-moves-statistics"),
    Fault("loading-takes-entries-out", "load_state() removes the optimizer's entries from the caller's mapping.",
          where=always, effect=optimizer_state_popped,
          caught_by="check_replica_does_not_change_given_arrays", cause="callers-mapping-changed"),
)
# fmt: on
