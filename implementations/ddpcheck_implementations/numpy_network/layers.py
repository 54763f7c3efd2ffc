"""Layers, each with a forward and a backward.

dy is the gradient of the loss with respect to a layer's output. backward(dy) returns the gradient with respect to its input,
possibly in the memory of dy, and adds its parameters' gradients to `gradients`. A layer stores the values of its last
training forward that backward needs. The network owns all parameters, and the optimizer changes them in place.

A batch may have no rows: sums over them are zero, which is the gradient of a rank without samples.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import numpy as np

from ddpcheck.models.spec import BATCH_NORM_EPS, BATCH_NORM_MOMENTUM
from ddpcheck.seeded_values import Array

Place = Callable[[str], Array | None]
"""A function from a parameter's name to the array for its gradient, or None."""


class Gradients(dict[str, Array | None]):
    """Gradients by name of every learned parameter; None while no layer has used it."""

    place: Place | None = None

    def room(self, name: str) -> Array | None:
        """An array for the first contribution to a gradient, as the `out` of a NumPy function, or None."""
        return self.place(name) if self.place is not None and self[name] is None else None


class Layer(Protocol):
    """One layer of the network.

    branch: the layer runs only if this branch is active. learns: whether it has or uses learned parameters. finishes: the
    parameters, last first, whose gradients are complete after this layer's backward. learns_before: whether any earlier
    layer learns; if none does, backward need not return a gradient.
    """

    branch: str | None
    learns: bool
    finishes: tuple[str, ...]
    learns_before: bool

    def forward(self, x: Array, training: bool) -> Array: ...

    def backward(self, dy: Array, gradients: Gradients) -> Array: ...


class Base:
    """The common attributes of most layers."""

    def __init__(self, finishes: tuple[str, ...] = (), branch: str | None = None) -> None:
        self.finishes = finishes
        self.branch = branch
        self.learns = bool(finishes)
        self.learns_before = True


def add(gradients: Gradients, name: str, gradient: Array) -> None:
    """Add a contribution to a gradient. A tied parameter gets one from each layer that uses it."""
    before = gradients[name]
    if before is None:
        gradients[name] = gradient
    else:
        before += gradient


class Linear(Base):
    """y = x W^T + b; as a residual branch y = x + x W^T + b. `name` is the layer whose parameters these are."""

    def __init__(
        self, name: str, weight: Array, bias: Array | None, *, learns: bool, owns: bool, branch: str | None
    ) -> None:
        names = (f"{name}.weight",) if bias is None else (f"{name}.bias", f"{name}.weight")
        super().__init__(names if learns and owns else (), branch)
        self.name, self.weight, self.bias, self.learns = name, weight, bias, learns
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
            name = self._weight_name
            add(gradients, name, np.matmul(dy.T, self._x, out=gradients.room(name)))
            if self.bias is not None:
                name = self._bias_name
                add(gradients, name, np.add.reduce(dy, axis=0, out=gradients.room(name)))
        if not self.learns_before:
            return dy
        dx: Array = dy @ self.weight
        if self.branch is not None:
            dx += dy
        return dx


class ReplacingLinear(Linear):
    """A Linear whose training forward moves the weight to new memory. renew: replaces the array by a copy and returns it."""

    renew: Callable[[str], Array]

    def forward(self, x: Array, training: bool) -> Array:
        if training:
            self.weight = self.renew(self._weight_name)
        return super().forward(x, training)


class Relu(Base):
    """y = max(x, 0), with derivative 0 at 0."""

    def forward(self, x: Array, training: bool) -> Array:
        y = np.maximum(x, 0)
        if training:
            self._y = y
        return y

    def backward(self, dy: Array, gradients: Gradients) -> Array:
        # dy *= y > 0 would turn an infinite gradient of an inactive unit into NaN
        np.putmask(dy, ~(self._y > 0), 0)
        return dy


class Tanh(Base):
    """y = tanh x, dy/dx = 1 - y^2."""

    def forward(self, x: Array, training: bool) -> Array:
        y: Array = np.tanh(x)
        if training:
            self._y = y
        return y

    def backward(self, dy: Array, gradients: Gradients) -> Array:
        slope = self._y * self._y
        np.subtract(1, slope, out=slope)
        dy *= slope
        return dy


class Delay(Base):
    """y = x, after a wait: simulates an accelerator, which leaves the processor to communication threads."""

    def __init__(self, forward: float, backward: float) -> None:
        super().__init__()
        self._forward, self._backward = forward, backward

    def forward(self, x: Array, training: bool) -> Array:
        time.sleep(self._forward)
        return x

    def backward(self, dy: Array, gradients: Gradients) -> Array:
        time.sleep(self._backward)
        return dy


class Scale(Base):
    """y = x s, with one factor s for each feature, or one (0-d) for all. As a buffer, s does not learn.

    s may have a wider dtype than x: products are then computed in that dtype, and y is converted to the dtype of x.
    """

    def __init__(self, name: str, scale: Array, *, learns: bool) -> None:
        super().__init__((f"{name}.scale",) if learns else ())
        self.scale, self._name = scale, f"{name}.scale"

    def forward(self, x: Array, training: bool) -> Array:
        if training:
            self._x = x
        return np.multiply(x, self.scale, dtype=self.scale.dtype).astype(x.dtype, copy=False)

    def backward(self, dy: Array, gradients: Gradients) -> Array:
        if self.learns:
            along, axis = np.multiply(dy, self._x, dtype=self.scale.dtype), 0 if self.scale.ndim else None
            add(gradients, self._name, np.asarray(np.add.reduce(along, axis=axis, out=gradients.room(self._name))))
        dy *= self.scale
        return dy


class BatchNorm(Base):
    """Normalise each feature over the batch (in evaluation by the running statistics), then compute w x + b.

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
            y: Array = x - self.mean
            y /= np.sqrt(self.variance + BATCH_NORM_EPS)
            y *= self.weight
            y += self.bias
            return y
        rows = len(x)
        if not rows:
            self._normal = self._deviation = x  # without rows, statistics would be 0 / 0
            return x
        mean = x.sum(axis=0) / rows
        normal = x - mean
        squares = normal * normal
        variance = squares.sum(axis=0) / rows
        self._deviation = np.sqrt(variance + BATCH_NORM_EPS)
        normal /= self._deviation
        self._normal = normal
        self._track(mean, variance * (rows / max(rows - 1, 1)))
        y = np.multiply(normal, self.weight, out=squares)
        y += self.bias
        return y

    def _track(self, mean: Array, unbiased: Array) -> None:
        for running, new in ((self.mean, mean), (self.variance, unbiased)):
            running *= 1 - BATCH_NORM_MOMENTUM
            running += BATCH_NORM_MOMENTUM * new
        self.batches += 1

    def backward(self, dy: Array, gradients: Gradients) -> Array:
        weight, bias = f"{self._name}.weight", f"{self._name}.bias"
        along = dy * self._normal
        add(gradients, weight, np.add.reduce(along, axis=0, out=gradients.room(weight)))
        add(gradients, bias, np.add.reduce(dy, axis=0, out=gradients.room(bias)))
        rows = len(dy)
        if not rows:
            return dy
        dy *= self.weight
        np.multiply(dy, self._normal, out=along)
        np.multiply(self._normal, along.sum(axis=0) / rows, out=along)
        along += dy.sum(axis=0) / rows
        dy -= along
        dy /= self._deviation
        return dy


class ReplacingBatchNorm(BatchNorm):
    """A BatchNorm whose training forward replaces the network's arrays of running statistics."""

    def __init__(self, name: str, tensors: dict[str, Array]) -> None:
        super().__init__(name, tensors)
        self._tensors = tensors

    def forward(self, x: Array, training: bool) -> Array:
        for part, attribute in _STATISTICS.items():
            array = self._tensors[f"{self._name}.{part}"]
            if training:
                array = self._tensors[f"{self._name}.{part}"] = array.copy()
            setattr(self, attribute, array)
        return super().forward(x, training)


_STATISTICS = {"running_mean": "mean", "running_var": "variance", "num_batches_tracked": "batches"}
"""Attributes of a BatchNorm, by the names of its buffers."""


class Embedding(Base):
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
        room = gradients.room(self._name)
        gradient = np.zeros_like(self.weight) if room is None else room
        if room is not None:
            room.fill(0)
        np.add.at(gradient, self._ids, dy)  # gradient[ids] += dy would count repeated ids once
        add(gradients, self._name, gradient)
        return dy
