"""Why lattice Jobs give the same bits in every implementation, and the limits of that.

A dtype with a significand of t bits (24 or 53) holds every integer up to 2^t. Take integer parameters, inputs and
targets, layers and a loss that only add and multiply (linear, relu, scale, embedding; linear loss or squared error,
whose gradient is y - t; auxiliary terms of integer coefficients), batch sizes B_r that are powers of two, and
loss_scale = V * lcm(B_r), where V is the smallest multiple of W that has the odd divisors of all smaller numbers, too. Then

  - 1 / B_r is exact, and so is its product with anything, in any order;
  - rank r's local gradient is loss_scale / B_r times a sum of integers: a multiple of V, and so of W;
  - sum_r g_r / W is an integer, whether W divides before the sum, after it, or in between;
  - the mean over some of the ranks, as a running mean comes by, is an integer but for a power of two below W;
  - multiplying by fl(1/W) instead gives the same for most W. With fl(1/W) = (1 + d)/W and u the unit roundoff,
    fl(1/W) * W k = k (1 + d) rounds to k where |k d| is at most half the distance from k to its neighbours, which is
    never less than u |k| / 2: |d| <= u/2 is enough. In float64 that holds for every W up to 16; in float32 for every
    W up to 12 but 7 (d = 0.75 u), so a float32 Job for 7 ranks is not called exact. tests/test_oracle.py tries it.

Where a window has a second synchronised backward without zero_grad, some reduce the earlier sum once more; that
is exact if it is a multiple of V itself, so loss_scale is V^2 * lcm(B_r) there.

As every partial sum is an integer, rounding happens nowhere if none of them is larger than 2^t: `largest_integer`
bounds them all. With an integer learning rate the parameters stay integers, and the argument holds for the steps that
follow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache

import numpy as np

from ..contract import Capabilities
from ..job import (
    Backward,
    CloseWindow,
    Job,
    Observe,
    OpenWindow,
    Operation,
    Predict,
    Resume,
    Save,
    SetTrainable,
    Step,
    ZeroGrad,
)
from ..models.spec import Activation, Activity, BatchNorm, Embedding, Head, Linear, ModelSpec, Scale
from ..numerics import unit_roundoff
from .network import owner
from .rounding_count import widest

SIGNIFICAND = {"float32": 24, "float64": 53}
INPUT, PARAMETER = 2.0, 1.0  # the largest |value| of lattice data, and of initial lattice parameters
_QUIET = (Observe, Predict, Save, SetTrainable, OpenWindow, CloseWindow)


def loss_scale_for(world_size: int, operations: Sequence[Operation]) -> int:
    """The loss scale that makes every sum exact: V * lcm(B), or V^2 * lcm(B) if reduced gradients are accumulated."""
    sizes = [len(rank) for operation in operations if isinstance(operation, Backward) for rank in operation.samples]
    reduced = again = False
    for operation in operations:
        if isinstance(operation, Backward):
            again = again or reduced
            reduced = reduced or operation.sync
        elif isinstance(operation, (ZeroGrad, Resume)):
            reduced = False
    divisible = math.lcm(world_size, *range(1, world_size, 2))
    return int(divisible ** (2 if again else 1)) * math.lcm(*(size for size in sizes if size))


def is_exact(job: Job, capabilities: Capabilities) -> bool:
    """Whether every correct implementation with these promises must give the same bits for this Job."""
    if capabilities.replica.uneven_batches == "weighted" and any(_uneven(operation) for operation in job.operations):
        return False  # weights such as 2/3 are rounded
    if capabilities.replica.reduction_dtype != "model" or any(_weighs(operation) for operation in job.operations):
        return False
    if job.model is None or not reciprocal_is_exact(job.world_size, job.model.dtype):
        return False
    return largest_integer(job) <= 2.0 ** SIGNIFICAND[job.model.dtype]


def _uneven(operation: Operation) -> bool:
    return isinstance(operation, Backward) and len({len(rank) for rank in operation.samples}) > 1


def _weighs(operation: Operation) -> bool:
    return isinstance(operation, Backward) and bool(operation.weights)  # a sum of weights is not a power of two


@cache
def reciprocal_is_exact(world_size: int, dtype: str) -> bool:
    """Whether W k * fl(1/W) is k for every integer k: |d| <= u/2 in the module's docstring."""
    inverse = np.dtype(dtype).type(1) / np.dtype(dtype).type(world_size)
    return abs(Fraction(float(inverse)) * world_size - 1) <= Fraction(unit_roundoff(dtype)) / 2


def largest_integer(job: Job) -> float:
    """Bound on any number in a correct implementation's computation, in units of its smallest fraction (halves for
    squared error, quarters for a running mean of five ranks); inf if not exact.
    """
    model = job.model
    if model is None or job.data is None or job.data.values != "lattice" or job.data.loud or not _integral(job, model):
        return math.inf
    sizes = {tensor.name: PARAMETER for tensor in model.tensors()}
    switched = any(isinstance(operation, SetTrainable) for operation in job.operations)
    learned = [t.name for t in model.tensors() if t.role == "learned" or (switched and t.role == "frozen")]
    velocity = dict.fromkeys(sizes, 0.0)
    gradients: dict[str, float] = {}
    largest = 0.0
    for operation in job.operations:
        if isinstance(operation, Backward):
            batches = [len(rank) for rank in operation.samples]
            if operation.second or any(size & (size - 1) for size in batches):
                return math.inf
            found, reached = _backward(model, sizes, batches)
            for name, size in found.items():
                gradients[name] = gradients.get(name, 0.0) + size * job.world_size
            largest = max(largest, reached, *gradients.values())
        elif isinstance(operation, (ZeroGrad, Resume)):
            zeros = isinstance(operation, ZeroGrad) and operation.to_zeros
            gradients = dict.fromkeys(gradients, 0.0) if zeros else {}
        elif isinstance(operation, Step):
            for name, size in ((name, gradients[name]) for name in learned if name in gradients):
                gradient = size + job.optimizer.weight_decay * sizes[name]
                velocity[name] = job.optimizer.momentum * velocity[name] + gradient
                sizes[name] += job.optimizer.lr * velocity[name]
                largest = max(largest, sizes[name], velocity[name])
        elif not isinstance(operation, _QUIET):
            return math.inf
    return 2.0 ** max(1, (job.world_size - 1).bit_length() - 1) * largest


def _integral(job: Job, model: ModelSpec) -> bool:
    curved = any(
        isinstance(layer, BatchNorm) or (isinstance(layer, Activation) and layer.function != "relu")
        for layer in model.layers
    )
    if curved or model.loss == "cross_entropy" or model.loss_scale % loss_scale_for(job.world_size, job.operations):
        return False
    if not all(_coefficient(layer).is_integer() for layer in model.layers):
        return False
    rates = job.optimizer.lr, job.optimizer.momentum, job.optimizer.weight_decay
    stepping = any(isinstance(operation, Step) for operation in job.operations)
    return not stepping or (
        not job.optimizer.averaging and job.optimizer.name == "sgd" and all(float(rate).is_integer() for rate in rates)
    )


def _backward(model: ModelSpec, sizes: dict[str, float], batches: list[int]) -> tuple[dict[str, float], float]:
    """Bounds on each local gradient, and on all intermediate values, from bounds on the parameters."""
    rows = max(batches)
    entering = []
    x = INPUT
    for layer in model.layers:
        entering.append(x)
        x = _forward(layer, model, sizes, x)
    value, adjoint = _loss(model, x)
    terms = [_term(layer, model, sizes, x) for layer, x in zip(model.layers, entering, strict=True)]
    reached = max(*entering, model.loss_scale * (value + sum(term for term, _ in terms)) * rows)
    adjoint *= model.loss_scale  # some implementations multiply before they divide by the batch size
    gradients: dict[str, float] = {}
    for layer, x, (_, own) in zip(reversed(model.layers), reversed(entering), reversed(terms), strict=True):
        reached, own = max(reached, adjoint), own * model.loss_scale
        for name, size in _gradients(layer, model, x, (own if isinstance(layer, Head) else adjoint) * rows):
            gradients[name] = gradients.get(name, 0.0) + size
        if isinstance(layer, Linear) and layer.penalty:
            gradients[f"{layer.name}.weight"] += own * rows  # some implementations add the term to each sample's loss
        if isinstance(layer, Linear):
            through = adjoint * sizes[f"{owner(layer, model)}.weight"] * layer.outputs
            adjoint = through + adjoint if layer.branch else through
        elif isinstance(layer, Scale):
            adjoint *= sizes[f"{layer.name}.scale"]
        elif isinstance(layer, Head):
            adjoint += own * sizes[f"{layer.name}.weight"] * layer.outputs
        elif isinstance(layer, Activity):
            adjoint += own
    return gradients, max(reached, adjoint, *gradients.values())


def _forward(layer: object, model: ModelSpec, sizes: dict[str, float], x: float) -> float:
    if isinstance(layer, Linear):
        name = owner(layer, model)
        y = layer.inputs * sizes[f"{name}.weight"] * x + (sizes[f"{name}.bias"] if layer.bias else 0.0)
        return x + y if layer.branch else y
    if isinstance(layer, Scale):
        return x * sizes[f"{layer.name}.scale"]
    return sizes[f"{layer.name}.weight"] if isinstance(layer, Embedding) else x


def _gradients(layer: object, model: ModelSpec, x: float, adjoint: float) -> list[tuple[str, float]]:
    """Bounds on a layer's gradients; `adjoint` is already summed over the rows."""
    if isinstance(layer, (Linear, Head)):
        name = owner(layer, model) if isinstance(layer, Linear) else layer.name
        return [(f"{name}.weight", adjoint * x)] + [(f"{name}.bias", adjoint)] * layer.bias
    if isinstance(layer, Scale):
        return [(f"{layer.name}.scale", adjoint * x * (1 if layer.features else widest(model)))]
    return [(f"{layer.name}.weight", adjoint)] if isinstance(layer, Embedding) else []


def _loss(model: ModelSpec, y: float) -> tuple[float, float]:
    """Bounds on the loss of one sample, and on its derivative by an output, from a bound on the outputs."""
    # products, not powers: a power too large for a float raises, a product becomes infinite
    value, adjoint = (y * INPUT, INPUT) if model.loss == "linear" else ((y + INPUT) * (y + INPUT), y + INPUT)
    return value * model.output_features, adjoint


def _coefficient(layer: object) -> float:
    """The coefficient of the layer's auxiliary term; 0 if it has none."""
    if isinstance(layer, (Activity, Head)):
        return abs(float(layer.coefficient))
    return abs(float(layer.penalty)) if isinstance(layer, Linear) else 0.0


def _term(layer: object, model: ModelSpec, sizes: dict[str, float], x: float) -> tuple[float, float]:
    """Bounds on the layer's auxiliary term in the loss of one sample, and on its derivative by its argument: an output
    of the head, an activation, or an element of the weight.
    """
    often = _coefficient(layer)
    if not often:
        return 0.0, 0.0
    if isinstance(layer, Head):
        y = layer.inputs * sizes[f"{layer.name}.weight"] * x + (sizes[f"{layer.name}.bias"] if layer.bias else 0.0)
        value, adjoint = _loss(model, y)
        return often * value, often * adjoint
    size, count = x, widest(model)
    if isinstance(layer, Linear):
        size, count = sizes[f"{layer.name}.weight"], layer.inputs * layer.outputs
    return often * size * size * count, often * size
