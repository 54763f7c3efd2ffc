"""Layers: what each computes forward, and how a gradient goes back through it.

With dy the gradient of the loss by a layer's output, backward(dy) returns the one by its input and adds those by its
parameters to `gradients`. A layer keeps of its last forward pass what backward needs. All parameters are arrays that
the network owns and that the optimizer changes in place.

Zero rows are a batch like any other: sums over them are zero, which is the gradient of a rank that has no samples.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ddpcheck.model import BATCH_NORM_EPS, BATCH_NORM_MOMENTUM
from ddpcheck.values import Array

Gradients = dict[str, Array | None]
"""By name of every learned parameter; None as long as nothing has used it."""


class Layer(Protocol):
    """One link of the chain.

    branch: the layer is taken only where this branch is active. learns: it has or uses learned parameters. finishes:
    those, last first, whose gradient is complete when backward has passed this layer. learns_before: any layer before
    it learns; if none does, nobody needs what backward returns.
    """

    branch: str | None
    learns: bool
    finishes: tuple[str, ...]
    learns_before: bool

    def forward(self, x: Array, training: bool) -> Array: ...

    def backward(self, dy: Array, gradients: Gradients) -> Array: ...


class _Base:
    def __init__(self, finishes: tuple[str, ...] = (), branch: str | None = None) -> None:
        self.finishes = finishes
        self.branch = branch
        self.learns = bool(finishes)
        self.learns_before = True


def add(gradients: Gradients, name: str, gradient: Array) -> None:
    """A tied parameter gets one contribution from each layer that uses it."""
    before = gradients[name]
    gradients[name] = gradient if before is None else before + gradient


class Linear(_Base):
    """y = x W^T + b; as a residual branch y = x + x W^T + b. `name` is the layer whose parameters these are."""

    def __init__(
        self, name: str, weight: Array, bias: Array | None, *, learns: bool, owns: bool, branch: str | None
    ) -> None:
        names = (f"{name}.weight",) if bias is None else (f"{name}.bias", f"{name}.weight")
        super().__init__(names if learns and owns else (), branch)
        self.weight, self.bias, self.learns = weight, bias, learns
        self._weight_name, self._bias_name = f"{name}.weight", f"{name}.bias"

    def forward(self, x: Array, training: bool) -> Array:
        if training:
            self._x = x
        y: Array = x @ self.weight.T
        if self.bias is not None:
            y += self.bias
        if self.branch is not None:
            y += x
        return y

    def backward(self, dy: Array, gradients: Gradients) -> Array:
        if self.learns:
            add(gradients, self._weight_name, dy.T @ self._x)
            if self.bias is not None:
                add(gradients, self._bias_name, dy.sum(axis=0))
        if not self.learns_before:
            return dy
        dx: Array = dy @ self.weight
        return dx if self.branch is None else dx + dy


class Relu(_Base):
    """y = max(x, 0), with derivative 0 at 0."""

    def forward(self, x: Array, training: bool) -> Array:
        y = np.maximum(x, 0)
        if training:
            self._y = y
        return y

    def backward(self, dy: Array, gradients: Gradients) -> Array:
        # not dy * (y > 0): that would make NaN of an infinite gradient that no active unit passes on
        dx: Array = np.where(self._y > 0, dy, dy.dtype.type(0))
        return dx


class Tanh(_Base):
    """y = tanh x, dy/dx = 1 - y^2."""

    def forward(self, x: Array, training: bool) -> Array:
        y: Array = np.tanh(x)
        if training:
            self._y = y
        return y

    def backward(self, dy: Array, gradients: Gradients) -> Array:
        dx: Array = dy * (1 - self._y * self._y)
        return dx


class Scale(_Base):
    """y = x s, with s one factor for each feature or, 0-d, one for all. As a buffer it does not learn."""

    def __init__(self, name: str, scale: Array, *, learns: bool) -> None:
        super().__init__((f"{name}.scale",) if learns else ())
        self.scale, self._name = scale, f"{name}.scale"

    def forward(self, x: Array, training: bool) -> Array:
        if training:
            self._x = x
        return x * self.scale

    def backward(self, dy: Array, gradients: Gradients) -> Array:
        if self.learns:
            along = dy * self._x
            add(gradients, self._name, along.sum(axis=0) if self.scale.ndim else np.array(along.sum()))
        return dy * self.scale


class BatchNorm(_Base):
    """Every feature to mean 0 and variance 1 over the batch (in evaluation: by the running statistics), then w x + b.

    With n rows, z the normalised input and g = w dy: dx = (g - mean(g) - z mean(g z)) / sqrt(variance + eps).
    """

    def __init__(self, name: str, tensors: dict[str, Array]) -> None:
        super().__init__((f"{name}.bias", f"{name}.weight"))
        self._name = name
        self.weight, self.bias, self.mean, self.variance, self.batches = (
            tensors[f"{name}.{part}"]
            for part in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
        )

    def forward(self, x: Array, training: bool) -> Array:
        if not training:
            return (x - self.mean) / np.sqrt(self.variance + BATCH_NORM_EPS) * self.weight + self.bias
        rows = len(x)
        if not rows:
            self._normal = self._deviation = x  # no rows, no statistics: 0 / 0 must not reach the running ones
            return x
        mean = x.sum(axis=0) / rows
        centred = x - mean
        variance = (centred * centred).sum(axis=0) / rows
        self._deviation = np.sqrt(variance + BATCH_NORM_EPS)
        self._normal = centred / self._deviation
        self._track(mean, variance * (rows / max(rows - 1, 1)))
        return self._normal * self.weight + self.bias

    def _track(self, mean: Array, unbiased: Array) -> None:
        for running, new in ((self.mean, mean), (self.variance, unbiased)):
            running *= 1 - BATCH_NORM_MOMENTUM
            running += BATCH_NORM_MOMENTUM * new
        self.batches += 1

    def backward(self, dy: Array, gradients: Gradients) -> Array:
        add(gradients, f"{self._name}.weight", (dy * self._normal).sum(axis=0))
        add(gradients, f"{self._name}.bias", dy.sum(axis=0))
        rows = len(dy)
        if not rows:
            return dy
        g = dy * self.weight
        spread = g.sum(axis=0) / rows + self._normal * ((g * self._normal).sum(axis=0) / rows)
        dx: Array = (g - spread) / self._deviation
        return dx


class Embedding(_Base):
    """y = weight[ids]; the ids have no gradient."""

    def __init__(self, name: str, weight: Array) -> None:
        super().__init__((f"{name}.weight",))
        self.weight, self._name = weight, f"{name}.weight"

    def forward(self, x: Array, training: bool) -> Array:
        if training:
            self._ids = x
        y: Array = self.weight[x]
        return y

    def backward(self, dy: Array, gradients: Gradients) -> Array:
        gradient = np.zeros_like(self.weight)
        np.add.at(gradient, self._ids, dy)  # an id may occur twice, which `gradient[ids] += dy` would count once
        add(gradients, self._name, gradient)
        return dy
