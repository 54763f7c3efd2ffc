"""Means over ranks that divide at an unusual place: no check may mind them."""

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
    """The network with its loss divided by the world size, on the arrays of another one."""

    def __init__(self, model: ModelSpec, whole: Network, world: int) -> None:
        super().__init__(replace(model, loss_scale=model.loss_scale / world), whole.tensors)
        self.parameters, self.tensors = whole.parameters, whole.tensors
        self._learn(whole.learned)


@fault("loss-shared-over-ranks", world_size=3, unfreezing=False)
class SharedLoss(PlainReplica):
    """A synchronised backward divides the loss by the world size, so that each product in it is rounded anew. Its gradients are
    multiplied again, as those gathered before are whole, and divided after the sum.
    """

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
