"""Replicas that have a loss's auxiliary terms in unusual ways, and rightly so: by formula, after the reduction, weighted."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.contract.names import ALL_MODEL_FEATURES as FEATURES
from ddpcheck.models import spec
from ddpcheck.models.spec import ModelSpec
from ddpcheck.values import Array

from ...numpy_network import Network
from ..base import PlainReplica, added, fault
from ..bucketed import BucketReplica
from .sample_weights import Weighing, WholeBatch


class ByFormula(PlainReplica):
    """The network knows no penalties: their gradients are added by the formula, where gradients are the rank's own."""

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
    """Penalties need no reduction, as weights are equal on all ranks: what is counted over ranks is how many had a batch.

    pending: of this rank's micro-batches that are not reduced yet.
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


class Sums(PlainReplica):
    """Gradients are sums over the ranks, as promised, those of auxiliary terms too."""

    def reduce(self, name: str, gradient: Array) -> Array:
        return np.asarray(self.comm.all_reduce(gradient))


class Weighs(PlainReplica):
    """Ranks count by the sizes of their batches, as promised, in auxiliary terms too."""

    def synchronise(self, batch_size: int) -> None:
        sizes = self.comm.all_reduce(np.array([float(batch_size)]))
        factor = batch_size * self.world / float(sizes[0])
        self.local = {name: np.asarray(gradient * factor, gradient.dtype) for name, gradient in self.local.items()}
        super().synchronise(batch_size)


class Buckets(BucketReplica):
    """Buckets of two or four elements, into which auxiliary heads come in between."""

    cap = 16


by_formula = fault("penalties-by-formula", model_features=FEATURES)(ByFormula)
after_the_reduction = fault("penalties-after-the-reduction", model_features=FEATURES)(AfterTheReduction)
sums = fault("terms-in-sums", model_features=FEATURES, gradient="sum")(Sums)
weighs = fault("terms-by-batch-size", model_features=FEATURES, uneven_batches="weighted")(Weighs)
buckets = fault("terms-in-buckets", model_features=FEATURES)(Buckets)
own_means = fault("terms-in-own-weighted-means", model_features=FEATURES, sample_weights="equal_ranks")(Weighing)
whole_batch = fault("terms-of-the-whole-batch", model_features=FEATURES, sample_weights="by_weight")(WholeBatch)
