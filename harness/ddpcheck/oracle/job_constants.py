"""The constants of one walk over a Job: the model, the data and the promises."""

from __future__ import annotations

import numpy as np

from ..contract import Capabilities, ReplicaSync
from ..job import Job, PerRank
from ..models.spec import BatchNorm, Linear, ModelSpec, Tensor
from ..seeded_values import Array
from .bounded_values import Value, from_rank_zero
from .network import Shards, owner


class Case:
    """One Job with a model, under promises. everyone: all ranks. described: the model's tensors by name."""

    def __init__(self, job: Job, promised: Capabilities) -> None:
        assert job.model is not None
        self.job: Job = job
        self.model: ModelSpec = job.model
        self.promised: Capabilities = promised
        self.everyone: tuple[int, ...] = tuple(range(job.world_size))
        self.described: dict[str, Tensor] = {tensor.name: tensor for tensor in job.model.tensors()}
        self.parameters: list[str] = [name for name, tensor in self.described.items() if tensor.role != "buffer"]
        self.batch_norms: list[BatchNorm] = [layer for layer in job.model.layers if isinstance(layer, BatchNorm)]
        self._users = {name: self._using(name) for name in self.parameters}
        if job.data:
            inputs, targets = job.data.arrays(job.model)
            exact: Array = inputs.astype(np.float64) if inputs.dtype.kind == "f" else inputs
            self.data: tuple[Array, Array] = exact, targets

    def equal_on_ranks(self, name: str) -> bool:
        """Whether construction gives every rank the parameters and buffers of rank 0."""
        buffer = self.described[name].role == "buffer"
        return self.promised.replica.replica_sync >= (ReplicaSync.BUFFERS if buffer else ReplicaSync.PARAMETERS)

    def given(self) -> dict[str, Array]:
        """The initial tensors of every rank; counters stay integers, which a float may not hold exactly."""
        ranks = [self.job.initial(rank) for rank in self.everyone]
        stacked = {name: np.stack([rank[name] for rank in ranks]) for name in self.described}
        return {name: a.astype(np.float64) if a.dtype.kind == "f" else a for name, a in stacked.items()}

    def start(self, *, bounds: bool) -> dict[str, Value]:
        """The tensors of a new replica on every rank."""
        made = {}
        for name, given in self.given().items():
            array = from_rank_zero(given) if self.equal_on_ranks(name) else given
            made[name] = Value(array, np.zeros_like(array) if bounds else None)
        return made

    def shards(
        self,
        samples: PerRank,
        branches: tuple[tuple[str, ...], ...] = (),
        weights: tuple[tuple[float, ...], ...] = (),
    ) -> Shards:
        longest = max(map(len, samples))
        index = np.array([(*rank, *(0,) * (longest - len(rank))) for rank in samples], np.int64)
        active = {
            name: np.array([float(bool(branches) and name in branches[rank]) for rank in self.everyone])
            for name in self.model.branches
        }
        inputs, targets = self.data
        together = self.promised.replica.batch_norm == "synchronised"
        counts = np.array([len(rank) for rank in samples])
        padded = [(*rank, *(0.0,) * (longest - len(rank))) for rank in weights]
        weighing = np.array(padded, self.model.dtype).astype(np.float64) if weights else None
        return Shards(inputs[index], targets[index], counts, active, together, weights=weighing)

    def uses(self, name: str) -> int:
        """The number of layers that use this parameter: more than one if it is tied."""
        return len(self._users[name])

    def used(self, name: str, shards: Shards) -> Array:
        """The ranks whose forward passes use this parameter: bool (ranks,)."""
        taken = [shards.counts > 0 if branch is None else shards.active[branch] > 0 for branch in self._users[name]]
        used: Array = np.logical_or.reduce(taken) & (shards.counts > 0)
        return used

    def _using(self, name: str) -> tuple[str | None, ...]:
        """The branches of the layers that use a parameter; None for a layer in every forward pass."""
        layer = name.rpartition(".")[0]
        linear = [other for other in self.model.layers if isinstance(other, Linear)]
        return tuple(other.branch for other in linear if owner(other, self.model) == layer) or (None,)
