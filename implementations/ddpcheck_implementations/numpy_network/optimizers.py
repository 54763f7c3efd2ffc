"""SGD and Adam, as torch.optim computes them. A parameter without gradient keeps its value and its optimizer state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from ddpcheck.job import OptimizerSpec
from ddpcheck.values import Array


class Optimizer(Protocol):
    """It changes the parameters that it was made with in place, by `lr`, which a schedule may set anew."""

    lr: float

    def step(self, gradients: Mapping[str, Array | None]) -> None: ...

    def state(self) -> dict[str, Array]:
        """Copies of all that it has gathered, as "<what>.<parameter>"."""
        ...

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Go on from what state() gave, dropping what was gathered before. ValueError if it is another optimizer's."""
        ...


class Sgd:
    """v <- momentum v + g + weight_decay p, the first v is g + weight_decay p; p <- p - lr v."""

    def __init__(self, spec: OptimizerSpec, parameters: Mapping[str, Array]) -> None:
        self._spec, self._parameters, self.lr = spec, parameters, spec.lr
        self._velocity: dict[str, Array] = {}

    def step(self, gradients: Mapping[str, Array | None]) -> None:
        lr, momentum, decay = self.lr, self._spec.momentum, self._spec.weight_decay
        for name, gradient in gradients.items():
            if gradient is None:
                continue
            parameter = self._parameters[name]
            if decay:
                gradient = gradient + decay * parameter
            if momentum:
                velocity = self._velocity.get(name)
                if velocity is None:
                    velocity = self._velocity[name] = np.array(gradient, parameter.dtype)
                else:
                    velocity *= momentum
                    velocity += gradient
                gradient = velocity
            parameter -= lr * gradient

    def state(self) -> dict[str, Array]:
        return {f"velocity.{name}": velocity.copy() for name, velocity in self._velocity.items()}

    def load_state(self, state: Mapping[str, Array]) -> None:
        self._velocity = _loaded(state, ("velocity",), self._parameters)["velocity"]


class Adam:
    """m <- b1 m + (1 - b1) g; s <- b2 s + (1 - b2) g^2; p <- p - lr (m / (1 - b1^t)) / (sqrt(s / (1 - b2^t)) + eps).

    t counts the updates of each parameter by itself: one that had no gradient is not a step further.
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
            if spec.weight_decay:
                gradient = gradient + spec.weight_decay * parameter
            first, second, steps = self._first[name], self._second[name], self._steps[name]
            steps += 1
            first *= b1
            first += (1 - b1) * gradient
            second *= b2
            second += (1 - b2) * (gradient * gradient)
            t = int(steps)
            root = np.sqrt(second / (1 - b2**t))
            parameter -= self.lr * (first / (1 - b1**t)) / (root + spec.eps)

    def state(self) -> dict[str, Array]:
        parts = {"first": self._first, "second": self._second, "steps": self._steps}
        return {f"{part}.{name}": array.copy() for part, arrays in parts.items() for name, array in arrays.items()}

    def load_state(self, state: Mapping[str, Array]) -> None:
        loaded = _loaded(state, ("first", "second", "steps"), self._parameters)
        self._first, self._second, self._steps = loaded["first"], loaded["second"], loaded["steps"]


def make_optimizer(spec: OptimizerSpec, parameters: Mapping[str, Array]) -> Optimizer:
    return Sgd(spec, parameters) if spec.name == "sgd" else Adam(spec, parameters)


def _loaded(
    state: Mapping[str, Array], parts: tuple[str, ...], parameters: Mapping[str, Array]
) -> dict[str, dict[str, Array]]:
    """Copies of `state`, sorted by part and parameter."""
    made: dict[str, dict[str, Array]] = {part: {} for part in parts}
    for key, value in state.items():
        part, _, name = key.partition(".")
        if part not in made or name not in parameters:
            raise ValueError(
                f"optimizer state has {key!r}, which this optimizer does not know: was it saved by another one?"
            )
        made[part][name] = np.array(value)
    return made
