"""SGD and Adam, as torch.optim computes them. A parameter without gradient keeps its value and its optimizer state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ddpcheck.seeded_values import Array

if TYPE_CHECKING:
    from ddpcheck.job import OptimizerSpec

PIECE = 1 << 17
"""Elements of a large array that an optimizer processes at once."""


class Optimizer(Protocol):
    """An optimizer that changes its parameters in place. A schedule may set `lr` before each step."""

    lr: float

    def step(self, gradients: Mapping[str, Array | None]) -> None: ...

    def state(self) -> dict[str, Array]:
        """Return copies of all state, as "<kind>.<parameter>"."""
        ...

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Load the result of state(), replacing the present state. ValueError if it is another optimizer's."""
        ...


class Sgd:
    """v <- momentum v + g + weight_decay p, the first v is g + weight_decay p; p <- p - lr v."""

    def __init__(self, spec: OptimizerSpec, parameters: Mapping[str, Array]) -> None:
        self._spec, self._parameters, self.lr = spec, parameters, spec.lr
        self._velocity: dict[str, Array] = {}

    def step(self, gradients: Mapping[str, Array | None]) -> None:
        for name, gradient in gradients.items():
            if gradient is None:
                continue
            parameter = self._parameters[name]
            if not self._spec.momentum:
                for p, g in _pieces(parameter, gradient):
                    p -= self.lr * self._decayed(g, p)
                continue
            velocity = self._velocity.get(name)
            first = velocity is None
            if velocity is None:
                velocity = self._velocity[name] = np.empty_like(parameter)
            for p, g, v in _pieces(parameter, gradient, velocity):
                if first:
                    v[...] = self._decayed(g, p)
                else:
                    v *= self._spec.momentum
                    v += self._decayed(g, p)
                p -= self.lr * v

    def _decayed(self, gradient: Array, parameter: Array) -> Array:
        decay = self._spec.weight_decay
        return gradient + decay * parameter if decay else gradient

    def state(self) -> dict[str, Array]:
        return {f"velocity.{name}": velocity.copy() for name, velocity in self._velocity.items()}

    def load_state(self, state: Mapping[str, Array]) -> None:
        self._velocity = _loaded(state, ("velocity",), self._parameters)["velocity"]


class Adam:
    """m <- b1 m + (1 - b1) g; s <- b2 s + (1 - b2) g^2; p <- p - lr (m / (1 - b1^t)) / (sqrt(s / (1 - b2^t)) + eps).

    t is the number of updates of the parameter, so a step without its gradient does not count.
    """

    def __init__(self, spec: OptimizerSpec, parameters: Mapping[str, Array]) -> None:
        self._spec, self._parameters, self.lr = spec, parameters, spec.lr
        self._first: dict[str, Array] = {}
        self._second: dict[str, Array] = {}
        self._steps: dict[str, Array] = {}

    def step(self, gradients: Mapping[str, Array | None]) -> None:
        spec = self._spec
        b1, b2 = spec.betas
        for name, gradient in gradients.items():
            if gradient is None:
                continue
            parameter = self._parameters[name]
            if name not in self._steps:
                self._first[name] = np.zeros_like(parameter)
                self._second[name] = np.zeros_like(parameter)
                self._steps[name] = np.zeros((), np.int64)
            self._steps[name] += 1
            t = int(self._steps[name])
            for p, g, first, second in _pieces(parameter, gradient, self._first[name], self._second[name]):
                if spec.weight_decay:
                    g = g + spec.weight_decay * p
                first *= b1
                first += (1 - b1) * g
                second *= b2
                second += (1 - b2) * (g * g)
                root = np.sqrt(second / (1 - b2**t))
                p -= self.lr * (first / (1 - b1**t)) / (root + spec.eps)

    def state(self) -> dict[str, Array]:
        parts = {"first": self._first, "second": self._second, "steps": self._steps}
        return {f"{part}.{name}": array.copy() for part, arrays in parts.items() for name, array in arrays.items()}

    def load_state(self, state: Mapping[str, Array]) -> None:
        loaded = _loaded(state, ("first", "second", "steps"), self._parameters)
        self._first, self._second, self._steps = loaded["first"], loaded["second"], loaded["steps"]


def _pieces(*arrays: Array) -> Iterable[Sequence[Array]]:
    """Cut arrays of one shape into pieces that stay in the cache with the intermediate results."""
    size = arrays[0].size
    if size <= PIECE or not all(array.flags.c_contiguous for array in arrays):
        return (arrays,)
    flat = [array.reshape(-1) for array in arrays]
    return ([array[start : start + PIECE] for array in flat] for start in range(0, size, PIECE))


def make_optimizer(spec: OptimizerSpec, parameters: Mapping[str, Array]) -> Optimizer:
    return Sgd(spec, parameters) if spec.name == "sgd" else Adam(spec, parameters)


def _loaded(
    state: Mapping[str, Array], parts: tuple[str, ...], parameters: Mapping[str, Array]
) -> dict[str, dict[str, Array]]:
    """Copies of `state`, by part and parameter. ValueError on an unknown entry."""
    made: dict[str, dict[str, Array]] = {part: {} for part in parts}
    for key, value in state.items():
        part, _, name = key.partition(".")
        if part not in made or name not in parameters:
            raise ValueError(
                f"optimizer state has {key!r}, which this optimizer does not know: was it saved by another one?"
            )
        made[part][name] = np.array(value)
    return made
