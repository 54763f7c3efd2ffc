"""The optimizer of a training run that is emulated: SGD with momentum, or Adam, on every rank."""

from __future__ import annotations

import numpy as np

from ddpcheck.job import OptimizerSpec
from ddpcheck.oracle.rounding import by_rank
from ddpcheck.values import Array

Arrays = dict[str, Array]


class Steps:
    """What the ranks' optimizers remember, ranks first: moments by name, and how many updates they are old."""

    def __init__(self, ranks: int) -> None:
        self.first: Arrays = {}
        self.second: Arrays = {}
        self.age = np.zeros(ranks)

    def copy(self) -> Steps:
        made = Steps(len(self.age))
        made.first, made.second, made.age = {**self.first}, {**self.second}, self.age
        return made

    def forget(self, ranks: Array) -> None:
        """Begin anew where `ranks`, a mask, is true."""
        self.age = np.where(ranks, 0.0, self.age)
        for moments in (self.first, self.second):
            for name, array in moments.items():
                moments[name] = np.where(by_rank(ranks, array), 0.0, array)

    def grow(self) -> None:
        """One more update is about to be taken."""
        self.age = self.age + 1

    def taken(self, name: str, gradient: Array, rate: Array, spec: OptimizerSpec, *, rate_in_momentum: bool) -> Array:
        """What this update takes from a parameter, as the oracle has it (optimizer.py)."""
        if spec.name == "adam":
            return rate * self._direction(name, gradient, spec)
        inside, outside = (rate, 1.0) if rate_in_momentum else (1.0, rate)
        velocity = self.first[name] = spec.momentum * self.first.get(name, 0.0) + inside * gradient
        return np.asarray(outside * velocity)

    def _direction(self, name: str, gradient: Array, spec: OptimizerSpec) -> Array:
        """Kingma and Ba, 2015, algorithm 1."""
        beta, gamma = spec.betas
        first = self.first[name] = beta * self.first.get(name, 0.0) + (1 - beta) * gradient
        second = self.second[name] = gamma * self.second.get(name, 0.0) + (1 - gamma) * gradient**2
        age = by_rank(self.age, gradient)
        return np.asarray(first / (1 - beta**age) / (np.sqrt(second / (1 - gamma**age)) + spec.eps))
