"""Correct replicas with unusual auxiliary loss terms: by formula, after the reduction, or weighted."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.contract.allowed_names import ALL_MODEL_FEATURES as FEATURES
from ddpcheck.models import spec
from ddpcheck.models.spec import ModelSpec
from ddpcheck.seeded_values import Array

from ...numpy_network import Network
from ..base import PlainReplica, added
from ..bucketed import BucketReplica
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.gradients import summed
from ..engine.replicas import Made, weighted_by_batch_size
from .sample_weights import Weighing, WholeBatch


class ByFormula(PlainReplica):
    """Correct: the network has no penalties; their gradients are computed by formula and added to local gradients."""

    def make_network(self, model: ModelSpec, initial: Mapping[str, Array]) -> Network:
        linear = [layer for layer in model.layers if isinstance(layer, spec.Linear)]
        self.penalties = {f"{layer.name}.weight": layer.penalty * model.loss_scale for layer in linear if layer.penalty}
        bare = tuple(
            spec.Linear(one.name, one.inputs, one.outputs, one.bias, one.frozen, one.branch, one.uses, one.strided)
            if isinstance(one, spec.Linear)
            else one
            for one in model.layers
        )
        return super().make_network(ModelSpec(bare, model.loss, model.loss_scale, model.dtype), initial)

    def backward(self, batch: Batch) -> float:
        if not len(batch.inputs):
            return super().backward(batch)
        self.add_penalties()
        return super().backward(batch) + self.told()

    def add_penalties(self) -> None:
        self.local = added(self.local, self.of_penalties())

    def of_penalties(self) -> dict[str, Array]:
        weights = self.network.parameters
        there = {name: often for name, often in self.penalties.items() if name in self.network.learned}
        return {name: np.asarray(weights[name] * weights[name].dtype.type(often)) for name, often in there.items()}

    def told(self) -> float:
        weights = self.network.parameters
        return sum(float(np.square(weights[name]).sum()) * often / 2 for name, often in self.penalties.items())


class AfterTheReduction(ByFormula):
    """Correct: gradients of penalties are added after the reduction, because weights are equal on all ranks.

    Only the number of micro-batches with samples is summed over ranks. pending: this rank's number since the last reduction.
    """

    pending = 0

    def add_penalties(self) -> None:
        self.pending += 1

    def synchronise(self, batch_size: int) -> None:
        often = float(self.comm.all_reduce(np.array([float(self.pending)]))[0]) / self.world
        self.pending = 0
        super().synchronise(batch_size)
        self.synced = added(self.synced, self.times(often)) if often else self.synced

    def times(self, often: float) -> dict[str, Array]:
        return {name: np.asarray(array * array.dtype.type(often)) for name, array in self.of_penalties().items()}

    def zero_grad(self) -> None:
        super().zero_grad()
        self.pending = 0

    def _shown(self) -> dict[str, Array]:
        return added(super()._shown(), self.times(self.pending)) if self.pending else super()._shown()


# fmt: off
table(
    globals(),
    Fault("penalties-by-formula", "Correct: the gradients of penalties are computed by formula.",
          where=always, effect=Made(ByFormula), model_features=FEATURES),
    Fault("penalties-after-the-reduction", "Correct: the gradients of penalties are added after the reduction.",
          where=always, effect=Made(AfterTheReduction), model_features=FEATURES),
    Fault("terms-in-sums", "Correct if promised: gradients, auxiliary terms included, are summed.",
          where=always, effect=summed, model_features=FEATURES, gradient="sum"),
    Fault("terms-by-batch-size", "Correct if promised: auxiliary terms are weighted by batch size.",
          where=always, effect=weighted_by_batch_size,
          model_features=FEATURES, uneven_batches="weighted"),
    Fault("terms-in-buckets", "Correct: auxiliary terms, with gradients in small buckets.",
          where=always, effect=Made(BucketReplica, cap=16), model_features=FEATURES),
    Fault("terms-in-own-weighted-means", "Correct where ranks count equally: auxiliary terms beside weighted samples.",
          where=always, effect=Made(Weighing),
          model_features=FEATURES, sample_weights="equal_ranks"),
    Fault("terms-of-the-whole-batch", "Correct where ranks count by weight: auxiliary terms beside weighted samples.",
          where=always, effect=Made(WholeBatch),
          model_features=FEATURES, sample_weights="by_weight"),
)
# fmt: on
