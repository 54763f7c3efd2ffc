"""Repeats the first steps of a run as one process takes them, for a model that only the implementation can build.

Every rank holds the samples of all ranks. Inside no_sync() it adds up the gradients of all ranks' micro-batches, one
after the other. So no gradient is communicated, and batch norm normalises each micro-batch separately, as the ranks do.
Synchronised batch norm normalises the micro-batches of all ranks as one batch, and so does this process.

Its optimizer gets a multiple of the mean gradient, and TrainingPlan.optimizer_for removes the factor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..contract import Capabilities, ReplicaMethod
from ..contract.adapter import Batch, Facets
from ..seeded_values import Array
from .datasets import DataSet
from .plan import TrainingPlan, windows

STEPS = 20
"""The number of repeated steps. Each rank repeats the work of all ranks."""


@dataclass(frozen=True)
class FirstSteps:
    """The first steps of a run, or of its first epoch if that has fewer.

    start: the loaded state, empty if none. order: (ranks, samples of each). parameters: their result.
    """

    learning_rate: float
    start: Mapping[str, Any]
    order: npt.NDArray[np.int64]
    parameters: Mapping[str, Array]


@dataclass(frozen=True)
class OneProcess:
    """The same steps without communication. Every rank calls it, since all ranks make replicas together."""

    plan: TrainingPlan
    capabilities: Capabilities
    facets: Facets
    data: DataSet
    first: FirstSteps

    def parameters(self, *, off: float = 0.0, steps: int = STEPS) -> dict[str, Array]:
        """The parameters after these steps. off: with a learning rate that is off by this many roundings of float32."""
        assert self.facets.make_replica is not None
        rate = self.first.learning_rate * (1 + off * float(np.finfo(np.float32).eps))
        factor = self.plan.accumulation * (1 if self._normalises_all else len(self.first.order))
        optimizer = self.plan.optimizer_for(rate, factor)
        replica = self.facets.make_replica(self.plan.model, {}, optimizer, dict(self.plan.options))
        if self.first.start:
            replica.load_state(self.first.start)
        inputs, labels = self.data.train.inputs, self.data.train.labels
        for parts in self._steps()[:steps]:
            replica.zero_grad()
            with replica.no_sync() if self.capabilities.has(ReplicaMethod.NO_SYNC) else nullcontext():
                for samples in self._batches(parts):
                    replica.backward(Batch(inputs[samples], labels[samples]))
            if self.plan.clip is not None:
                replica.clip(self.plan.clip * factor)
            replica.step()
        return {name: np.array(array) for name, array in replica.parameters().items()}

    @property
    def _normalises_all(self) -> bool:
        return self.capabilities.replica.batch_norm == "synchronised"

    def _steps(self) -> list[list[slice]]:
        return windows(self.first.order.shape[1], self.plan.batch_size, self.plan.accumulation)

    def _batches(self, parts: list[slice]) -> Iterator[npt.NDArray[np.int64]]:
        for part in parts:
            of_ranks = self.first.order[:, part]
            yield from (of_ranks.reshape(1, -1) if self._normalises_all else of_ranks)
