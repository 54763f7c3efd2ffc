"""Layers that add a term to the loss: a weight penalty, the size of an activation, an auxiliary head.

A term is part of every sample's loss, and is averaged over samples with the same weights.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from ddpcheck.models import spec
from ddpcheck.seeded_values import Array

from .layers import Base, Gradients, Linear, add
from .losses import make_shared_loss


def shares(outputs: Array, scale: float, weights: Array | None) -> Array:
    """Each sample's weight in the loss. The sum is `scale`, or 0 without samples or without weight."""
    if weights is None:
        return np.full(len(outputs), scale / (len(outputs) or 1), outputs.dtype)
    return np.asarray(weights * (scale / (float(weights.sum()) or 1.0)), outputs.dtype)


@runtime_checkable
class Term(Protocol):
    """A Layer with an auxiliary term in the loss. coefficient: the term's factor."""

    coefficient: float

    def of(self, targets: Array, each: Array) -> float:
        """The term of the last forward pass. `each`: each sample's weight, here and in the following backward."""
        ...


class Penalised(Linear):
    """A Linear whose weight adds coefficient / 2 * sum w^2 to the loss of each sample."""

    coefficient: float

    def of(self, targets: Array, each: Array) -> float:
        self._often = float(each.sum(dtype=np.float64)) * self.coefficient
        return float(np.square(self.weight).sum()) * (self._often / 2)

    def backward(self, dy: Array, gradients: Gradients) -> Array:
        dx = super().backward(dy, gradients)
        if self.learns:
            add(gradients, f"{self.name}.weight", self.weight * self.weight.dtype.type(self._often))
        return dx


class Activity(Base):
    """y = x; adds coefficient / 2 * sum_j x_j^2 to the loss of each sample."""

    def __init__(self, coefficient: float) -> None:
        super().__init__()
        self.coefficient = coefficient

    def forward(self, x: Array, training: bool) -> Array:
        if training:
            self._x = x
        return x

    def of(self, targets: Array, each: Array) -> float:
        self._often = each[:, None] * each.dtype.type(self.coefficient)
        return float((np.square(self._x) * self._often).sum()) / 2

    def backward(self, dy: Array, gradients: Gradients) -> Array:
        dy += self._x * self._often
        return dy


class Head(Base):
    """y = x; adds the loss of another output, x W^T + b, for the same targets to the loss of each sample."""

    def __init__(self, declared: spec.Head, tensors: dict[str, Array], loss: str) -> None:
        name = declared.name
        bias = tensors[f"{name}.bias"] if declared.bias else None
        self._linear = Linear(name, tensors[f"{name}.weight"], bias, learns=True, owns=True, branch=None)
        super().__init__(self._linear.finishes)
        self.coefficient = declared.coefficient
        self._loss = make_shared_loss(loss)

    def forward(self, x: Array, training: bool) -> Array:
        if training:
            self._outputs = self._linear.forward(x, training)
        return x

    def of(self, targets: Array, each: Array) -> float:
        loss, self._dy = self._loss(self._outputs, targets, each * each.dtype.type(self.coefficient))
        return loss

    def backward(self, dy: Array, gradients: Gradients) -> Array:
        self._linear.learns_before = self.learns_before
        dx = self._linear.backward(self._dy, gradients)
        if self.learns_before:
            dy += dx
        return dy
