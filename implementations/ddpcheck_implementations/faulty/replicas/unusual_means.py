"""Replicas that divide means over ranks at an unusual place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.models.spec import ModelSpec
from ddpcheck.seeded_values import Array

from ...numpy_network import Network
from ..base import PlainReplica, fault


class SharedNetwork(Network):
    """A network on the arrays of another network, with its loss divided by the world size."""

    def __init__(self, model: ModelSpec, whole: Network, world: int) -> None:
        super().__init__(replace(model, loss_scale=model.loss_scale / world), whole.tensors)
        self.parameters, self.tensors = whole.parameters, whole.tensors
        self._learn(whole.learned)


@fault("loss-shared-over-ranks", world_size=3, unfreezing=False)
class SharedLoss(PlainReplica):
    """Correct: a synchronised backward divides the loss by the world size and sums gradients."""

    def make_network(self, model: ModelSpec, initial: Mapping[str, Array]) -> Network:
        whole = super().make_network(model, initial)
        self.shared = SharedNetwork(model, whole, self.world)
        return whole

    def backward(self, batch: Batch) -> float:
        if not self.syncing:
            return super().backward(batch)
        self.before_forward()
        found: dict[str, Array] = {}

        def keep(name: str, gradient: Array | None) -> None:
            if gradient is not None:
                found[name] = np.asarray(gradient * self.world, gradient.dtype)

        loss = self.shared.backward(batch.inputs, batch.targets, batch.branches, keep) * self.world
        for name, gradient in found.items():
            self.local[name] = self.local[name] + gradient if name in self.local else gradient
        self.latest = frozenset(found)
        self.synchronise(len(batch.inputs))
        return loss


class _GlobalBatch(PlainReplica):
    """Correct: each rank divides by the number of all samples, and gradients are summed."""

    def synchronise(self, batch_size: int) -> None:
        self.part = batch_size / max(1, self.all_samples(batch_size))
        super().synchronise(batch_size)

    def all_samples(self, batch_size: int) -> int:
        return int(self.comm.all_reduce(np.array(batch_size, np.int64)))

    def reduce(self, name: str, gradient: Array) -> Array:
        share = np.asarray(gradient * self.part, gradient.dtype)
        return np.asarray(self.comm.all_reduce(share), gradient.dtype)


divided_by_the_global_batch = fault(
    "divided-by-the-global-batch", uneven_batches="weighted", no_sync=False, unfreezing=False
)(_GlobalBatch)


@fault(
    "global-batch-taken-for-the-own-times-the-ranks",
    "check_uneven_batches_are_weighted_by_size",
    uneven_batches="weighted",
    no_sync=False,
)
class OwnBatchTimesRanks(_GlobalBatch):
    """The global batch size is taken to be the rank's own times the world size."""

    def all_samples(self, batch_size: int) -> int:
        return batch_size * self.world
