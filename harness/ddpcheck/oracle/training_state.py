"""The values that training changes: parameters, their averages and buffers on every rank, and the optimizer's state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..contract import ReplicaSync
from ..models.spec import BATCH_NORM_MOMENTUM, BatchNorm
from ..seeded_values import Array
from .bounded_values import Value, as_shown, combine
from .gradients import Gradients
from .history import History
from .job_constants import Case
from .network import Evaluation, Shards
from .optimizer import Optimizer
from .origins import Averaged, Loading, Origin, PassedOver, Tracked, Update
from .statistics import running_statistics


class Weights:
    """tensors: parameters and buffers. averages: of parameters. zeros: of the shape of each parameter. origins: the
    last operation on each tensor; averaged: the last operation on each average. trained: whether a step or a loaded
    state came before. apart: whether running statistics may have diverged since the ranks last held the same.
    """

    def __init__(self, case: Case, *, bounds: bool, rates: Sequence[float]) -> None:
        self._case, self._dtype = case, case.model.dtype
        self.tensors: dict[str, Value] = case.start(bounds=bounds)
        self.averages: dict[str, Value] = self.parameters()
        self.zeros: dict[str, Value] = {name: value.zeros() for name, value in self.averages.items()}
        self.origins: dict[str, Origin] = {}
        self.averaged: dict[str, Origin] = {}
        self.trained: bool = False
        self.apart: bool = False
        self._steps = 0
        self._optimizer = Optimizer(case.job.optimizer, self._dtype, roundings=3 + 4 * len(rates))
        self._rates = list(rates)
        self._saved: dict[str, tuple[dict[str, Value], dict[str, Value], Optimizer, bool]] = {}

    def parameters(self) -> dict[str, Value]:
        return {name: self.tensors[name] for name in self._case.parameters}

    def buffers(self) -> dict[str, Value]:
        return {name: value for name, value in self.tensors.items() if self._case.described[name].role == "buffer"}

    def replaced(self, what: str, shown: Sequence[Mapping[str, Array | None]]) -> bool:
        """Take what the ranks show of this kind, which is exact. False if a value is missing."""
        held = self.averages if what == "averaged" else self.tensors
        for name in self.buffers() if what == "buffers" else self.parameters():
            value = as_shown(shown, name)
            if value is None or value.exact.shape != held[name].exact.shape:
                return False
            held[name] = value
        return True

    def step(self, gradients: Gradients, history: History) -> None:
        self.trained, begun = True, self.parameters()
        if self._rates:
            self._optimizer.spec = replace(self._optimizer.spec, lr=self._rates.pop(0))
        before = self._optimizer.copy()
        values = {name: gradients.sum(name) or self.zeros[name] for name in gradients.of}
        if self._case.promised.replica.skips_nonfinite and not all(
            np.isfinite(value.exact).all() for value in values.values()
        ):
            return
        for name in self._case.parameters:
            if name not in values or not gradients.everywhere(name):
                self.origins[name] = PassedOver(name, self.tensors[name].exact, before, self.origins.get(name))
        for name, value in values.items():
            if gradients.everywhere(name):
                parameter = self.tensors[name]
                last = self.origins.get(name)
                initial = last.initial if isinstance(last, Loading) else None
                earlier = last.before if isinstance(last, Update) else None
                self.origins[name] = Update(
                    name, parameter.exact, value.exact, before, history, gradients.clipped, initial, earlier
                )
                self.tensors[name] = self._optimizer.step(name, parameter, value)
        self._steps += 1
        if decay := self._optimizer.spec.averaging:
            for name, value in self.parameters().items():
                old, average = begun[name].exact, self.averages[name].exact
                self.averaged[name] = Averaged(average, old, value.exact, decay, self._steps)
                self.averages[name] = combine([(decay, self.averages[name]), (1 - decay, value)], 3, self._dtype)

    def track(self, found: Evaluation, shards: Shards, *, inside: bool = False) -> None:
        """Running statistics after a forward pass in training mode, perhaps inside no_sync()."""
        for layer in self._case.batch_norms:
            self.apart = self.apart or (len(self._case.everyone) > 1 and not shards.together)
            made = self._statistics(layer, found, shards, BATCH_NORM_MOMENTUM)
            for name, value in made.items():
                before = self.tensors[name].exact
                self.origins[name] = Tracked(before, value.exact, shards.counts, shards.together, inside)
            self.tensors.update(made)

    def remeasure(self, found: Evaluation, shards: Shards) -> None:
        """Replace running statistics by the statistics of these samples of all ranks."""
        for layer in self._case.batch_norms:
            made = self._statistics(layer, found, shards, 1.0)
            self.tensors.update({name: value for name, value in made.items() if ".running_" in name})
        self.apart = False

    def _statistics(self, layer: BatchNorm, found: Evaluation, shards: Shards, momentum: float) -> dict[str, Value]:
        first = layer is self._case.model.layers[0]
        return running_statistics(layer, self.tensors, found, shards, self._dtype, first=first, momentum=momentum)

    def save(self, name: str) -> None:
        self._saved[name] = dict(self.tensors), dict(self.averages), self._optimizer.copy(), self.apart

    def resume(self, name: str) -> None:
        """Every rank resumes from its own checkpoint. Checkpoints differ if construction leaves ranks different."""
        self.trained = True
        tensors, averages, optimizer, self.apart = self._saved[name]
        for key, value in self.tensors.items():
            self.origins[key] = Loading(key, self._case.job, value.exact, self.origins.get(key))
        for key, value in self.averages.items():
            self.averaged[key] = Loading(key, self._case.job, value.exact, self.averaged.get(key))
        self.tensors, self.averages = (
            {key: value.of_rank_zero() if self._case.equal_on_ranks(key) else value for key, value in of.items()}
            for of in (tensors, averages)
        )
        alike = self._case.promised.replica.replica_sync >= ReplicaSync.PARAMETERS
        self._optimizer = optimizer.of_rank_zero() if alike else optimizer.copy()
