"""Looking at a replica, by an evaluation, a checkpoint or a log, changes it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ddpcheck.adapter import Batch
from ddpcheck.values import Array

from .base import PlainReplica, fault

EVALUATED = "check_evaluation_leaves_training_alone"
SAVED = "check_saving_leaves_training_alone"
HANDED_OUT = "check_what_a_replica_hands_out_and_is_given_stays_as_it_is"


@fault("evaluation-clears-gradients", "classic", EVALUATED)
class EvaluationClearsGradients(PlainReplica):
    """An evaluation between backward and step begins with zero_grad."""

    def predict(self, batch: Batch) -> Array:
        self.zero_grad()
        return super().predict(batch)


@fault("rank0-only-wrapped-forward", "pytorch/pytorch#54059", EVALUATED)
class EvaluatesTogether(PlainReplica):
    """The forward of an evaluation broadcasts: a rank that evaluates alone waits for the others."""

    def predict(self, batch: Batch) -> Array:
        self.comm.broadcast(np.zeros(1))
        return super().predict(batch)


@fault("evaluation-moves-statistics", "classic", "check_evaluation_uses_the_running_statistics")
class EvaluationCounts(PlainReplica):
    """An evaluation counts as a batch in the running statistics."""

    def predict(self, batch: Batch) -> Array:
        made = super().predict(batch)
        for name, buffer in self.network.buffers.items():
            if name.endswith("num_batches_tracked"):
                buffer += 1
        return made


@fault("saving-clears-gradients", "classic", SAVED)
class SavingClearsGradients(PlainReplica):
    """state() frees the gradients, to save memory."""

    def state(self) -> dict[str, Array]:
        made = super().state()
        self.zero_grad()
        return made


@fault("checkpoint-without-statistics", "classic", "check_a_checkpoint_holds_running_statistics")
class ForgetsStatistics(PlainReplica):
    """load_state loads parameters and forgets batch norm's buffers."""

    def load_state(self, state: Mapping[str, Array]) -> None:
        kept = {name: buffer.copy() for name, buffer in self.network.buffers.items()}
        super().load_state(state)
        for name, buffer in kept.items():
            self.network.buffers[name][...] = buffer


@fault("gradients-are-views", "classic", HANDED_OUT, words="view of the replica's own memory")
class GradientsAreViews(PlainReplica):
    """gradients() hands out the buffers that the next backward fills again."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.buffers_of_gradients = {
            name: np.zeros_like(self.network.parameters[name]) for name in self.network.learned
        }

    def gradients(self) -> dict[str, Array | None]:
        shown = super().gradients()
        for name, gradient in shown.items():
            if gradient is not None:
                self.buffers_of_gradients[name][...] = gradient
        return {name: None if shown[name] is None else self.buffers_of_gradients[name] for name in shown}


@fault("clipping-needs-every-gradient", "classic", "check_clipping_passes_over_parameters_without_gradient")
class ClipsEverything(PlainReplica):
    """clip() takes every parameter to have a gradient."""

    def clip(self, max_norm: float) -> float:
        shown = self._shown()
        assert all(shown[name].size for name in self.network.learned)
        return super().clip(max_norm)
