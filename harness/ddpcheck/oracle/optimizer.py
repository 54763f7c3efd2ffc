"""SGD and Adam as OptimizerSpec defines them, on values with bounds.

SGD is a sum of products, and bounded as any sum. Adam divides by a root; its bound follows from the largest errors of
numerator and denominator. With the update u = m / d, d = sqrt(s) + eps,

    |u' - u| <= (|m' - m| + |u| |d' - d|) / d',        d' >= max(sqrt(s) - |sqrt(s') - sqrt(s)|, 0) + eps
    |sqrt(s') - sqrt(s)| <= min(|s' - s| / sqrt(s), sqrt|s' - s|)

The bound holds for any eps, and is useful if eps is not tiny: for a gradient near 0 and eps 1e-8, Adam turns the
gradient's rounding into a full step. Checks draw eps >= 1e-3.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..job import OptimizerSpec
from ..numerics import gamma
from ..seeded_values import Array
from .bounded_values import Value, combine


@dataclass
class Optimizer:
    """The state of one run: each parameter's moments and number of updates.

    roundings: of p - lr u, including those of a scheduled learning rate.
    """

    spec: OptimizerSpec
    dtype: str
    state: dict[str, Value] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    roundings: int = 3

    def copy(self) -> Optimizer:
        """A copy that is updated independently."""
        return Optimizer(self.spec, self.dtype, dict(self.state), dict(self.steps), self.roundings)

    def of_rank_zero(self) -> Optimizer:
        """A copy in which every rank holds rank 0's state."""
        state = {name: value.of_rank_zero() for name, value in self.state.items()}
        return Optimizer(self.spec, self.dtype, state, dict(self.steps), self.roundings)

    def step(self, name: str, parameter: Value, gradient: Value) -> Value:
        """The parameter after one update. Not for a parameter without gradient: it stays unchanged."""
        if self.spec.weight_decay:
            gradient = combine([(1.0, gradient), (self.spec.weight_decay, parameter)], 3, self.dtype)
        return (self._sgd if self.spec.name == "sgd" else self._adam)(name, parameter, gradient)

    def _sgd(self, name: str, parameter: Value, gradient: Value) -> Value:
        if self.spec.momentum:
            if name in self.state:
                gradient = combine([(self.spec.momentum, self.state[name]), (1.0, gradient)], 3, self.dtype)
            self.state[name] = gradient
        return combine([(1.0, parameter), (-self.spec.lr, gradient)], self.roundings, self.dtype)

    def _adam(self, name: str, parameter: Value, gradient: Value) -> Value:
        first, second = self.spec.betas
        step = self.steps[name] = self.steps.get(name, 0) + 1
        zero = gradient.zeros()
        m = combine([(first, self.state.get(f"{name}.m", zero)), (1 - first, gradient)], 4, self.dtype)
        s = combine(
            [(second, self.state.get(f"{name}.s", zero)), (1 - second, _square(gradient, self.dtype))], 4, self.dtype
        )
        self.state[f"{name}.m"], self.state[f"{name}.s"] = m, s
        unbiased_m = combine([(1.0, m)], 2, self.dtype, divisor=1 - first**step)
        unbiased_s = combine([(1.0, s)], 2, self.dtype, divisor=1 - second**step)
        update = self._ratio(unbiased_m, unbiased_s)
        return combine([(1.0, parameter), (-self.spec.lr, update)], self.roundings, self.dtype)

    def _ratio(self, m: Value, s: Value) -> Value:
        root = np.sqrt(s.exact)
        exact = m.exact / (root + self.spec.eps)
        if m.error is None or s.error is None:
            return Value(exact)
        with np.errstate(divide="ignore", invalid="ignore"):
            moved = np.fmin(s.error / root, np.sqrt(s.error))
        least = np.maximum(root - moved, 0) + self.spec.eps
        error = (m.error + abs(exact) * moved) / least
        return Value(exact, error + (gamma(6, self.dtype) + gamma(6, np.float64)) * (abs(exact) + error))


def _square(value: Value, dtype: str) -> Value:
    exact = value.exact * value.exact
    if value.error is None:
        return Value(exact)
    moved: Array = 2 * abs(value.exact) * value.error + value.error**2
    return Value(exact, moved + (gamma(1, dtype) + gamma(1, np.float64)) * (exact + moved))
