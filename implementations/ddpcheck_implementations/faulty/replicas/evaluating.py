"""Looking at a replica, by an evaluation, a checkpoint or a log, changes it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.models.spec import ModelSpec
from ddpcheck.values import Array

from ..base import PlainReplica, fault

EVALUATED = "check_predict_does_not_change_training"
STATISTICS = "check_predict_uses_the_running_statistics"
SAVED = "check_saving_does_not_change_training"


@fault("evaluation-clears-gradients", EVALUATED, cause="gradients-taken-by")
class EvaluationClearsGradients(PlainReplica):
    """An evaluation between backward and step begins with zero_grad."""

    def predict(self, batch: Batch) -> Array:
        self.zero_grad()
        return super().predict(batch)


@fault(
    "rank0-only-wrapped-forward",
    EVALUATED,
    seen_in=("pytorch/pytorch#54059",),
    cause="evaluation-communicates",
)
class EvaluatesTogether(PlainReplica):
    """The forward of an evaluation broadcasts: a rank that evaluates alone waits for the others."""

    def predict(self, batch: Batch) -> Array:
        self.comm.broadcast(np.zeros(1))
        return super().predict(batch)


@fault(
    "evaluation-moves-statistics",
    "check_predict_uses_the_running_statistics",
    cause="evaluation-moves-statistics",
)
class EvaluationCounts(PlainReplica):
    """An evaluation counts as a batch in the running statistics."""

    def predict(self, batch: Batch) -> Array:
        made = super().predict(batch)
        for name, buffer in self.network.buffers.items():
            if name.endswith("num_batches_tracked"):
                buffer += 1
        return made


@fault("saving-clears-gradients", SAVED, cause="gradients-taken-by")
class SavingClearsGradients(PlainReplica):
    """state() frees the gradients, to save memory."""

    def state(self) -> dict[str, Array]:
        made = super().state()
        self.zero_grad()
        return made


@fault(
    "checkpoint-without-statistics",
    "check_checkpoint_restores_running_statistics",
    cause="state-not-loaded",
)
class ForgetsStatistics(PlainReplica):
    """load_state loads parameters and forgets batch norm's buffers."""

    def load_state(self, state: Mapping[str, Array]) -> None:
        kept = {name: buffer.copy() for name, buffer in self.network.buffers.items()}
        super().load_state(state)
        for name, buffer in kept.items():
            self.network.buffers[name][...] = buffer


@fault("gradients-are-views", seen_in=("pytorch/pytorch#47163",))
class GradientsAreViews(PlainReplica):
    """Correct: gradients() hands out the buffers that the next backward fills again, and they are read at once."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.filled = {name: np.zeros_like(self.network.parameters[name]) for name in self.network.parameters}

    def gradients(self) -> dict[str, Array | None]:
        shown = super().gradients()
        for name, gradient in shown.items():
            if gradient is not None:
                self.filled[name][...] = gradient
        return {name: None if shown[name] is None else self.filled[name] for name in shown}


@fault("state-is-views", "check_saved_state_is_a_copy", cause="state-is-view")
class StateIsViews(PlainReplica):
    """state() hands out the parameters themselves, which training goes on to change."""

    def state(self) -> dict[str, Array]:
        return super().state() | self.network.parameters


@fault("batch-normalised-in-place", "check_backward_does_not_change_its_batch", cause="call-changes-batch")
class ChangesBatch(PlainReplica):
    """Backward centres its inputs in place, and puts them back but for rounding."""

    def backward(self, batch: Batch) -> float:
        loss = super().backward(batch)
        if batch.inputs.dtype.kind == "f":
            batch.inputs[...] = (batch.inputs + 1) * 1.0000001 - 1
        return loss


@fault("clipping-needs-every-gradient", "check_clipping_ignores_unused_parameters")
class ClipsEverything(PlainReplica):
    """clip() takes every parameter to have a gradient."""

    def clip(self, max_norm: float) -> float:
        shown = self._shown()
        assert all(shown[name].size for name in self.network.learned)
        return super().clip(max_norm)


@fault("state-shares-moments", "check_saved_state_is_a_copy", cause="state-is-view")
class StateSharesMoments(PlainReplica):
    """state() copies the momentum of SGD, and hands out Adam's moments themselves."""

    def state(self) -> dict[str, Array]:
        parts = {part: getattr(self.optimizer, f"_{part}", {}) for part in ("first", "second")}
        moments = {f"optimizer.{part}.{name}": array for part, own in parts.items() for name, array in own.items()}
        return super().state() | moments


@fault(
    "loaded-moments-are-kept",
    "check_replica_does_not_change_given_arrays",
    cause="works-in-callers-arrays",
)
class KeepsLoadedMoments(PlainReplica):
    """load_state() copies the momentum of SGD, and goes on in the arrays of Adam's moments that it was given."""

    def load_state(self, state: Mapping[str, Array]) -> None:
        super().load_state(state)
        for part in ("first", "second"):
            own = getattr(self.optimizer, f"_{part}", {})
            own.update({name: state[f"optimizer.{part}.{name}"] for name in own})


@fault("state-shares-statistics", "check_saved_state_is_a_copy", cause="state-is-view")
class StateSharesStatistics(PlainReplica):
    """state() copies the parameters, and hands out the buffers themselves."""

    def state(self) -> dict[str, Array]:
        return super().state() | self.network.buffers


@fault(
    "large-evaluations-normalise-by-their-batch",
    "check_predict_uses_the_running_statistics",
    cause="evaluation-moves-statistics",
)
class NormalisesLargeOnes(PlainReplica):
    """A fused kernel for more than 32 rows has no running statistics."""

    def predict(self, batch: Batch) -> Array:
        if len(batch.inputs) <= 32:
            return super().predict(batch)
        return self.network._forward(batch.inputs, batch.branches, training=True)


@fault(
    "loading-takes-entries-out",
    "check_replica_does_not_change_given_arrays",
    cause="callers-mapping-changed",
)
class PopsWhatItLoads(PlainReplica):
    """load_state() pops what the optimizer needs from the mapping that it was given."""

    def load_state(self, state: Mapping[str, Array]) -> None:
        super().load_state(dict(state))
        assert isinstance(state, dict)
        for name in [name for name in state if name.startswith("optimizer.")]:
            state.pop(name)


@fault("predictions-kept-until-the-next-step", STATISTICS, cause="evaluation-uses-other-values")
class PredictionsKept(PlainReplica):
    """What was predicted is kept until a step changes the parameters: forward passes change the running statistics before."""

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
