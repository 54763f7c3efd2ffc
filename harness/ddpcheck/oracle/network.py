"""Every layer and loss of a ModelSpec, for all ranks at once.

All arrays carry the rank as their first axis: parameters are (ranks, *shape), inputs (ranks, rows, features). One
traced evaluation then gives every rank's own gradient, and the conventions of job_in_one_process.py make the gradient of the
whole batch of them. Ranks with fewer samples have rows of weight zero at their end.

The majorant network
--------------------
A sum of products, each of which goes through at most m roundings, is off by at most gamma_m * sum|products|. To get the
sum of |products|, evaluate the same network on the absolute values of parameters, inputs and targets, with everything not
a sum of products replaced by a function that grows at least as fast:

    relu           identity
    tanh           z, which covers |tanh| and its growth, with the derivative 1 + 0.77 z, which covers |tanh'| and, as
                   |tanh''| < 0.77, its growth
    y - t          y + t
    coefficients   their absolute values
    cross entropy  log n + 2 s + s^2/8 with s = sum_j y_j: covers the loss and its growth; 2 + s/4 covers
                   |softmax - onehot|, and its growth that of softmax, as |d softmax_j / d y_k| <= 1/4

autograd's gradient of it bounds each gradient's sum of |products|. All of its operations are sums and products of
numbers that are not negative, so it also bounds sensitivity: if parameters p are off by at most e, then values and
gradients are off by at most M(|p| + e) - M(|p|). Batch norm divides by measured values and has no majorant here;
nor have models that hold one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import autograd.numpy
import numpy
from autograd.tracer import getval

from ..models.spec import BATCH_NORM_EPS, Activation, Activity, BatchNorm, Embedding, Head, Linear, ModelSpec, Scale
from ..seeded_values import Array
from .autodiff import gradients
from .autograd_nodes import affine, cross_entropy, cross_entropy_majorant, scaled, squared_distance, tanh_majorant
from .auxiliary_terms import Beside, flattened, penalties

np: Any = autograd.numpy  # autograd.numpy gets NumPy's names at import, which type checkers cannot see


@dataclass(frozen=True)
class Shards:
    """One batch on all ranks.

    counts: rows in use on each rank; active: for each branch, 1.0 on the ranks that take it; together: batch norm
    measures the rows of all ranks as one batch; at_zero: relu's derivative at 0, for a diagnosis; weights: of the
    samples in each rank's loss, (ranks, rows), None if all weigh the same; eps: batch norm's, for a diagnosis.
    """

    inputs: Array
    targets: Array
    counts: Array
    active: Mapping[str, Array]
    together: bool = False
    at_zero: float = 0.0
    weights: Array | None = None
    eps: float = BATCH_NORM_EPS

    @property
    def rows(self) -> Array:
        """1.0 where a row is in use, else 0.0: shape (ranks, rows)."""
        return (numpy.arange(self.inputs.shape[1]) < self.counts[:, None]).astype(numpy.float64)

    def twice(self) -> Shards:
        """The same batch on twice as many ranks: once on these, once on the others."""
        active = {name: numpy.tile(taken, 2) for name, taken in self.active.items()}
        inputs, targets = (numpy.concatenate([array, array]) for array in (self.inputs, self.targets))
        weights = None if self.weights is None else numpy.tile(self.weights, (2, 1))
        return Shards(inputs, targets, numpy.tile(self.counts, 2), active, weights=weights)

    def shares(self) -> Array:
        """The share of each row in its rank's loss: (ranks, rows). The shares of a rank add up to 1, or are all 0."""
        weights = self.rows if self.weights is None else self.weights
        sums = weights.sum(axis=1, keepdims=True)
        return weights / numpy.where(sums > 0, sums, 1.0)


@dataclass
class Evaluation:
    """losses: (ranks,). gradients: (ranks, *shape) by name, without those that no rank's loss depends on.

    kinks: the inputs of each relu. moments: the measurements of batch norm, (mean, unbiased variance) by layer. beside:
    the auxiliary terms, while the network is evaluated.
    """

    losses: Array
    gradients: dict[str, Array]
    kinks: list[Array] = field(default_factory=list)
    moments: dict[str, tuple[Array, Array]] = field(default_factory=dict)
    beside: list[Beside] = field(default_factory=list)

    def halves(self) -> tuple[Evaluation, Evaluation]:
        """The results of the first and of the second half of the ranks, without moments."""
        half = len(self.losses) // 2
        first, second = (
            Evaluation(
                self.losses[ranks],
                {name: gradient[ranks] for name, gradient in self.gradients.items()},
                [entered[ranks] for entered in self.kinks],
            )
            for ranks in (slice(half), slice(half, None))
        )
        return first, second


def has_majorant(model: ModelSpec) -> bool:
    return not any(isinstance(layer, BatchNorm) for layer in model.layers)


def evaluate(
    model: ModelSpec,
    learned: Mapping[str, Array],
    fixed: Mapping[str, Array],
    shards: Shards,
    *,
    majorant: bool = False,
) -> Evaluation:
    """Losses and gradients of every rank in training mode. `fixed`: frozen parameters and buffers."""
    made = Evaluation(numpy.zeros(len(shards.counts)), {})
    if shards.weights is None:
        weights = shards.rows * (model.loss_scale / numpy.maximum(shards.counts, 1))[:, None]
    else:
        weights = shards.shares() * model.loss_scale
    if majorant:
        learned = {name: abs(array) for name, array in learned.items()}
        fixed = {name: abs(array) for name, array in fixed.items()}
        real = shards.inputs.dtype.kind == "f"
        shards = Shards(
            abs(shards.inputs) if real else shards.inputs, abs(shards.targets), shards.counts, shards.active
        )
        weights = abs(weights)

    def weighted_terms(traced: dict[str, Any]) -> tuple[Any, Array]:
        tensors = {**_by_rows(fixed), **traced}
        outputs = forward(model, tensors, shards, made, majorant=majorant)
        terms, weighted = _loss_terms(model, outputs, shards.targets, weights[:, :, None], majorant)
        beside = [*made.beside, *penalties(model, tensors)]
        if beside:
            terms, weighted = flattened(model, terms, weighted, beside, weights, majorant=majorant)
        made.losses = (getval(terms) * weighted).sum(axis=tuple(range(1, weighted.ndim)))
        return terms, weighted

    found = gradients(weighted_terms, _by_rows(learned))
    made.beside.clear()
    made.gradients = {name: _as_declared(gradient, learned[name]) for name, gradient in found.items()}
    return made


def outputs(model: ModelSpec, tensors: Mapping[str, Array], shards: Shards, *, majorant: bool = False) -> Array:
    """Outputs (ranks, rows, outputs) in evaluation mode."""
    if majorant and shards.inputs.dtype.kind == "f":
        shards = Shards(abs(shards.inputs), shards.targets, shards.counts, shards.active)
    made: Array = forward(model, _by_rows(tensors), shards, None, majorant=majorant)
    return made


def _by_rows(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Tensors in the form that `forward` takes: matrices transposed, others with an axis for rows, outside autograd's
    trace.
    """
    return {
        name: array.swapaxes(1, 2) if array.ndim == 3 else array.reshape(len(array), 1, -1)
        for name, array in tensors.items()
    }


def _as_declared(gradient: Array, like: Array) -> Array:
    return gradient.swapaxes(1, 2) if like.ndim == 3 else gradient.reshape(like.shape)


def forward(
    model: ModelSpec,
    tensors: Mapping[str, Any],
    shards: Shards,
    watched: Evaluation | None,
    *,
    majorant: bool = False,
) -> Any:
    """Outputs of tensors that went through _by_rows. `watched` records kinks and moments; None: evaluation mode."""
    x: Any = shards.inputs
    for layer in model.layers:
        if isinstance(layer, Linear):
            x = _linear(layer, model, tensors, x, shards)
        elif isinstance(layer, Activation):
            x = _activation(layer, x, shards, watched, majorant)
        elif isinstance(layer, Scale):
            x = x * tensors[f"{layer.name}.scale"]
        elif isinstance(layer, Embedding):
            x = tensors[f"{layer.name}.weight"][numpy.arange(len(x))[:, None], :, x]
        elif isinstance(layer, BatchNorm):
            x = _batch_norm(layer, tensors, x, shards, watched)
        elif isinstance(layer, (Activity, Head)) and watched is not None:
            watched.beside.append(_beside(layer, model, tensors, x, shards, majorant))
    return x


def _beside(
    layer: Activity | Head, model: ModelSpec, tensors: Mapping[str, Any], x: Any, shards: Shards, majorant: bool
) -> Beside:
    if isinstance(layer, Activity):
        return Beside(np.square(x), numpy.full(x.shape, layer.coefficient / 2))
    weight = tensors[f"{layer.name}.weight"]
    y = affine(x, weight, tensors[f"{layer.name}.bias"]) if layer.bias else np.matmul(x, weight)
    one = numpy.full((*x.shape[:2], 1), layer.coefficient)
    return Beside(*_loss_terms(model, y, shards.targets, one, majorant))


def owner(layer: Linear, model: ModelSpec) -> str:
    """The name of the layer whose parameters this layer uses."""
    while layer.uses is not None:
        layer = next(other for other in model.layers if isinstance(other, Linear) and other.name == layer.uses)
    return layer.name


def _linear(layer: Linear, model: ModelSpec, tensors: Mapping[str, Any], x: Any, shards: Shards) -> Any:
    taken = shards.active.get(layer.branch) if layer.branch else None
    if layer.branch and (taken is None or not taken.any()):
        return x
    name = owner(layer, model)
    weight = tensors[f"{name}.weight"]
    y = affine(x, weight, tensors[f"{name}.bias"]) if layer.bias else np.matmul(x, weight)
    return y if taken is None else x + scaled(y, taken[:, None, None])


def _activation(layer: Activation, x: Any, shards: Shards, watched: Evaluation | None, majorant: bool) -> Any:
    entered = getval(x)
    if layer.function == "tanh":
        return tanh_majorant(x) if majorant else np.tanh(x)
    if watched is not None:
        watched.kinks.append(entered)
    slopes = entered > 0  # the derivative of maximum(x, 0) would be 1/2 at 0
    if shards.at_zero:
        slopes = slopes + shards.at_zero * (entered == 0)
    return x if majorant else scaled(x, slopes)


def _batch_norm(
    layer: BatchNorm, tensors: Mapping[str, Any], x: Any, shards: Shards, watched: Evaluation | None
) -> Any:
    if watched is None:
        mean, variance = (tensors[f"{layer.name}.{name}"] for name in ("running_mean", "running_var"))
    else:
        counts = numpy.full_like(shards.counts, shards.counts.sum()) if shards.together else shards.counts
        rows, count = shards.rows[:, :, None], numpy.maximum(counts, 1)[:, None, None]
        over = (0, 1) if shards.together else 1
        mean = np.sum(x * rows, axis=over, keepdims=True) / count
        variance = np.sum((x - mean) ** 2 * rows, axis=over, keepdims=True) / count
        unbiased = getval(variance) * (count / numpy.maximum(count - 1, 1))
        watched.moments[layer.name] = (getval(mean)[:, 0], unbiased[:, 0])
    normal = (x - mean) / np.sqrt(variance + shards.eps)
    return normal * tensors[f"{layer.name}.weight"] + tensors[f"{layer.name}.bias"]


def _loss_terms(model: ModelSpec, y: Any, targets: Array, weights: Array, majorant: bool) -> tuple[Any, Array]:
    """Terms (ranks, rows, n) and their weights, of the same shape: the weighted sum over rows and n is each rank's loss."""
    if model.loss == "linear":
        return y, targets * weights
    if model.loss == "squared_error":
        distances = squared_distance(y, -targets if majorant else targets)
        return distances, (weights / 2).repeat(y.shape[2], axis=2)
    if majorant:
        return cross_entropy_majorant(y), weights
    return cross_entropy(y, numpy.arange(y.shape[2]) == targets[:, :, None]), weights
