"""The optimizers of an emulated training run: the oracle's, which some ranks may have started anew."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...job import OptimizerSpec
from ...oracle.bounded_values import Value, by_rank
from ...oracle.optimizer import Optimizer
from ...seeded_values import Array

Arrays = dict[str, Array]


class RankOptimizers:
    """One optimizer for each rank. Arrays have the ranks as first axis."""

    def __init__(self, spec: OptimizerSpec, ranks: int) -> None:
        self.spec = spec
        self._old, self._new = _optimizer(spec), _optimizer(spec)
        self._began_anew = np.zeros(ranks, bool)

    def copy(self) -> RankOptimizers:
        made = RankOptimizers(self.spec, len(self._began_anew))
        made._old, made._new, made._began_anew = self._old.copy(), self._new.copy(), self._began_anew
        return made

    def forget(self, ranks: Array) -> None:
        """Start anew where `ranks`, a mask, is true."""
        self._new, self._began_anew = _optimizer(self.spec), ranks

    def step(self, name: str, gradient: Array, rate: Array, spec: OptimizerSpec, *, rate_in_momentum: bool) -> Array:
        """The amount that this step subtracts from a parameter. spec: of this step; its lr and weight_decay do not count."""
        inside = rate_in_momentum and spec.name == "sgd"
        taken = Value(gradient * rate if inside else gradient)
        update = self._update(self._old, name, taken, spec)
        if self._began_anew.any():
            update = np.where(by_rank(self._began_anew, update), self._update(self._new, name, taken, spec), update)
        return update if inside else update * rate

    def without_last_momentum(self, before: RankOptimizers) -> None:
        """Undo the last step's change of the state, if there was a state before it."""
        if before._old.state:
            self._old.state = dict(before._old.state)

    @staticmethod
    def _update(optimizer: Optimizer, name: str, gradient: Value, spec: OptimizerSpec) -> Array:
        optimizer.spec = _unit(spec)
        return -optimizer.step(name, gradient.zeros(), gradient).exact


def _optimizer(spec: OptimizerSpec) -> Optimizer:
    return Optimizer(_unit(spec), "float64")


def _unit(spec: OptimizerSpec) -> OptimizerSpec:
    """The spec with learning rate 1 and without weight decay: the run's rules apply both."""
    return replace(spec, lr=1.0, weight_decay=0.0)
