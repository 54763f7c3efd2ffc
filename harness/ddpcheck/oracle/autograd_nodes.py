"""Parts of layers and losses, each as one node of autograd's trace; NumPy functions would need two to seven nodes.

In a small network a node costs more than its arithmetic. Arguments after the first are constants, except in an affine
layer. The tests compare every derivative with numerical differences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
from autograd.extend import defvjp, primitive

from ..seeded_values import Array


def _affine(x: Array, weight: Array, bias: Array) -> Array:
    made: Array = numpy.matmul(x, weight)
    made += bias
    return made


def _scaled(x: Array, factors: Array) -> Array:
    made: Array = x * factors
    return made


def _squared_distance(x: Array, other: Array) -> Array:
    made: Array = numpy.square(x - other)
    return made


def _tanh_majorant(x: Array) -> Array:
    return x


def _cross_entropy(y: Array, onehot: Array) -> Array:
    shifted = y - y.max(axis=2, keepdims=True)
    sums = numpy.exp(shifted).sum(axis=2, keepdims=True)
    made: Array = numpy.log(sums) - (shifted * onehot).sum(axis=2, keepdims=True)
    return made


def _minus_onehot(_: Array, y: Array, onehot: Array) -> Callable[[Array], Array]:
    exp = numpy.exp(y - y.max(axis=2, keepdims=True))
    difference = exp / exp.sum(axis=2, keepdims=True) - onehot
    return lambda outgoing: outgoing * difference


def _cross_entropy_majorant(y: Array) -> Array:
    s = y.sum(axis=2, keepdims=True)
    made: Array = numpy.log(y.shape[2]) + s * (2 + s / 8)
    return made


def _growth(_: Array, y: Array) -> Callable[[Array], Array]:
    growth = (2 + y.sum(axis=2, keepdims=True) / 4).repeat(y.shape[2], axis=2)
    return lambda outgoing: outgoing * growth


affine: Any = primitive(_affine)
"""x (ranks, rows, n) @ weight (ranks, n, m) + bias (ranks, 1, m)."""

scaled: Any = primitive(_scaled)
"""x * factors, which broadcast to x."""

squared_distance: Any = primitive(_squared_distance)
"""(x - other)^2; both have one shape."""

tanh_majorant: Any = primitive(_tanh_majorant)
"""x, with the derivative 1 + 0.77 x: network.py."""

cross_entropy: Any = primitive(_cross_entropy)
"""Of logits y (ranks, rows, n) and onehot, 1.0 at each row's class: (ranks, rows, 1)."""

cross_entropy_majorant: Any = primitive(_cross_entropy_majorant)
"""log n + 2 s + s^2/8, s the sum of y (ranks, rows, n): network.py."""

defvjp(
    affine,
    lambda _, x, weight, bias: lambda outgoing: numpy.matmul(outgoing, weight.swapaxes(1, 2)),
    lambda _, x, weight, bias: lambda outgoing: numpy.matmul(x.swapaxes(1, 2), outgoing),
    lambda _, x, weight, bias: lambda outgoing: outgoing.sum(axis=1, keepdims=True),
)
defvjp(scaled, lambda _, x, factors: lambda outgoing: outgoing * factors)
defvjp(squared_distance, lambda _, x, other: lambda outgoing: outgoing * (2 * (x - other)))
defvjp(tanh_majorant, lambda _, x: lambda outgoing: outgoing * (1 + 0.77 * x))
defvjp(cross_entropy, _minus_onehot)
defvjp(cross_entropy_majorant, _growth)
