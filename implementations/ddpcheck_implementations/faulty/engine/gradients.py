"""The seam of gradients: a plain replica, with an effect on a gradient's reduction in one circumstance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ddpcheck.models.spec import Embedding, ModelSpec, Scale
from ddpcheck.seeded_values import Array

from ..base import Counting, PlainReplica, fault
from .circumstances import Circumstance


@dataclass(frozen=True)
class Gradient:
    """One gradient before its reduction. array: this rank's local gradient."""

    replica: WrongGradients
    name: str
    array: Array

    @property
    def rank(self) -> int:
        return self.replica.rank

    @property
    def world(self) -> int:
        return self.replica.world

    @property
    def size(self) -> int:
        return self.replica.world

    def cast(self, values: Any) -> Array:
        return np.asarray(values, self.array.dtype)

    def summed(self) -> Array:
        return np.asarray(self.replica.comm.all_reduce(self.array))

    def gathered(self) -> Array:
        return np.asarray(self.replica.comm.all_gather(self.array))


@dataclass(frozen=True)
class GradientEffect:
    """sent: changes the local gradient. got: changes the mean. instead: computes a result without the mean."""

    sent: Callable[[Gradient], Array] | None = None
    got: Callable[[Gradient, Array], Any] | None = None
    instead: Callable[[Gradient], Any] | None = None
    register = staticmethod(fault)

    def reduced(self, gradient: Gradient, mean: Callable[[Array], Array]) -> Array:
        if self.instead is not None:
            return gradient.cast(self.instead(gradient))
        found = mean(gradient.array if self.sent is None else self.sent(gradient))
        return gradient.cast(found if self.got is None else self.got(gradient, found))

    def implemented(self, where: Circumstance) -> type[Any]:
        return type("Wrong", (WrongGradients,), {"where": where, "effect": self})


class WrongGradients(Counting):
    """A plain replica, with the effect where the circumstance holds. steps: number of steps taken."""

    where: Circumstance
    effect: GradientEffect
    steps = 0

    def start(self, model: ModelSpec) -> None:
        self.layers = model.layers
        super().start(model)

    def step(self) -> None:
        super().step()
        self.steps += 1

    def reduce(self, name: str, gradient: Array) -> Array:
        def mean(array: Array) -> Array:
            return PlainReplica.reduce(self, name, array)

        found = Gradient(self, name, gradient)
        return self.effect.reduced(found, mean) if self.where(found) else mean(gradient)


# ---------------------------------------------------------------------------------------------------- circumstances


def after_backwards(count: int) -> Circumstance:
    return Circumstance(f"after {count} backwards", lambda gradient: gradient.replica.backwards > count)


def every_step(period: int) -> Circumstance:
    """The last step of each period."""
    return Circumstance(f"at every {period}th step", lambda gradient: gradient.replica.steps % period == period - 1)


def world_of(size: int) -> Circumstance:
    return Circumstance(f"at world size {size}", lambda gradient: gradient.world == size)


def of_layer(kind: type[Embedding | Scale]) -> Circumstance:
    """The parameters of layers of this kind."""

    def holds(gradient: Gradient) -> bool:
        layer = gradient.name.rpartition(".")[0]
        return any(isinstance(each, kind) and each.name == layer for each in gradient.replica.layers)

    return Circumstance(f"in {kind.__name__}", holds)


of_sparse_table = Circumstance(
    "in a sparse embedding",
    lambda gradient: any(
        isinstance(layer, Embedding) and layer.sparse and f"{layer.name}.weight" == gradient.name
        for layer in gradient.replica.layers
    ),
)
unused_here = Circumstance("not used on this rank", lambda gradient: gradient.name not in gradient.replica.local)
last_parameter = Circumstance(
    "the last parameter", lambda gradient: gradient.name == gradient.replica.network.learned[-1]
)
odd_number_of_parameters = Circumstance(
    "an odd number of parameters", lambda gradient: len(gradient.replica.network.learned) % 2
)
another_dtype_than_first = Circumstance(
    "another dtype than the first parameter",
    lambda gradient: gradient.array.dtype != next(iter(gradient.replica.network.parameters.values())).dtype,
)

# --------------------------------------------------------------------------------------------------------- effects


def sending(array: Callable[[Gradient], Array]) -> GradientEffect:
    """Change the local gradient."""
    return GradientEffect(sent=array)


def giving(result: Callable[[Gradient, Array], Any]) -> GradientEffect:
    """Change the mean."""
    return GradientEffect(got=result)


def instead(computed: Callable[[Gradient], Any]) -> GradientEffect:
    """Compute the result in another way, on all ranks."""
    return GradientEffect(instead=computed)


def divided_by(divisor: Callable[[Gradient], int]) -> GradientEffect:
    """Divide the sum by another number than the world size."""
    return GradientEffect(instead=lambda gradient: gradient.summed() / divisor(gradient))


def scaled(factor: float) -> GradientEffect:
    return GradientEffect(got=lambda gradient, mean: mean * factor)


def through(dtype: str) -> GradientEffect:
    """Send the gradient in this dtype."""
    return GradientEffect(sent=lambda gradient: gradient.array.astype(dtype))


def tail_kept_local(count: Callable[[Gradient], int]) -> GradientEffect:
    """The last elements are not reduced."""

    def kept(gradient: Gradient, mean: Array) -> Array:
        flat, last = mean.reshape(-1).copy(), count(gradient)
        if last:
            flat[-last:] = gradient.array.reshape(-1)[-last:]
        return flat.reshape(mean.shape)

    return GradientEffect(got=kept)


@instead
def summed(gradient: Gradient) -> Array:
    return gradient.summed()


@giving
def divided_twice(gradient: Gradient, mean: Array) -> Array:
    return np.asarray(mean / gradient.world)


@giving
def own_value(gradient: Gradient, mean: Array) -> Array:
    return gradient.array


@giving
def zeros(gradient: Gradient, mean: Array) -> Array:
    return np.zeros_like(mean)


@giving
def next_number(gradient: Gradient, mean: Array) -> Array:
    """Add one unit in the last place."""
    return np.asarray(np.nextafter(mean, np.inf, dtype=mean.dtype))
