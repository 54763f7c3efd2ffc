"""A model, declared: every framework's builder and the oracle can make it, so that one Job runs everywhere.

The forward pass is a chain of layers. x is the (batch, features) activation, or (batch,) integer ids before an Embedding:

    Linear      y = x W^T + b, weight of shape (outputs, inputs), bias of shape (outputs,). Of a `replaced` one the weight
                lies in new memory after each training forward; nothing reads the old memory
    Activation  relu (derivative 0 at 0), or tanh
    Scale       y = x * s, s of shape (features,) or, with features = 0, a 0-d scalar; learned, or a buffer. A `wide` one
                is of float64 in a model of float32: y, and the gradient by s, are computed in that, and y is then rounded
    BatchNorm   over the batch, with weight, bias and the buffers running_mean, running_var, num_batches_tracked;
                momentum 0.1, eps 1e-5, biased variance for normalising, unbiased for the running estimate; a `replaced` one
                makes new buffers in each training forward, and leaves the old ones as they were
    Embedding   y = weight[x], weight of shape (vocabulary, features); first layer only. Of a `sparse` one the gradient may be
                held as rows, where a framework has that; it is shown, as any, as an array of the weight's shape
    Delay       y = x, after waiting: work of an accelerator that leaves the host's cores alone
    Activity    y = x, whose size is a term of the loss
    Head        y = x, with an output of its own, linear(x), whose loss is a term of the loss; in training only

A Linear with 0 inputs or outputs has no elements in its weight; that of a `strided` one lies in memory column after column.
A Linear with `branch="a"` is a residual branch, y = x + linear(x), taken only by the ranks and steps that activate "a":
its parameters are unused elsewhere. A Linear with `uses="other"` has no parameters of its own: it is tied to `other`.
The loss of a batch of B samples is loss_scale times the mean over the samples of

    squared_error   sum_j (y_j - t_j)^2 / 2         targets (batch, outputs)
    linear          sum_j y_j t_j                   targets (batch, outputs)
    cross_entropy   -log softmax(y)[label]          targets (batch,) integer labels

and of what layers add to each sample's loss, its auxiliary terms:

    Activity        coefficient / 2 * sum_j x_j^2
    Head            coefficient times the loss, as above, of linear(x) against the sample's targets
    Linear          penalty / 2 * sum of the squares of its weight's elements, whether it is frozen or not; a mean over samples
                    has that once, one over no samples, or over samples without weight, not at all

Parameters are named "<layer>.weight" and "<layer>.bias", a scale "<layer>.scale", batch norm's buffers as above.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np

from ..seeded_values import Array, Kind, key_of, numbers
from ..storage.dataclass_json import plain
from .layers import Activation, Activity, BatchNorm, Delay, Embedding, Head, Layer, Linear, Scale

__all__ = [
    "BATCH_NORM_EPS",
    "BATCH_NORM_MOMENTUM",
    "Activation",
    "Activity",
    "BatchNorm",
    "Delay",
    "Embedding",
    "Head",
    "Layer",
    "Linear",
    "ModelSpec",
    "Scale",
    "Tensor",
    "mlp",
]

BATCH_NORM_MOMENTUM = 0.1
BATCH_NORM_EPS = 1e-5


@dataclass(frozen=True, slots=True)
class Tensor:
    """One named array of a model: its shape, its dtype, its role (learned, frozen or buffer), and whether its memory
    order is by column.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: Literal["learned", "frozen", "buffer"]
    positive: bool = False  # a variance must not start negative
    strided: bool = False


@plain
@dataclass(frozen=True)
class ModelSpec:
    """A chain of layers and a loss, as the module's docstring defines them. ValueError if the model cannot be built."""

    kind: ClassVar[str] = "model"
    layers: tuple[Layer, ...]
    loss: Literal["squared_error", "linear", "cross_entropy"] = "squared_error"
    loss_scale: float = 1.0
    dtype: str = "float32"

    def __post_init__(self) -> None:
        problems = list(_problems(self.layers))
        if problems:
            raise ValueError("this model cannot be built: " + "; ".join(problems))

    @property
    def vocabulary(self) -> int | None:
        """Number of ids if samples are integer ids, else None."""
        first = self.layers[0]
        return first.vocabulary if isinstance(first, Embedding) else None

    @property
    def input_features(self) -> int:
        """Features of one sample; 0 when samples are integer ids."""
        return 0 if self.vocabulary is not None else next(filter(None, map(_width_in, self.layers)))

    @property
    def output_features(self) -> int:
        return next(filter(None, map(_width_out, reversed(self.layers))))

    @property
    def branches(self) -> tuple[str, ...]:
        """Names of the branches that a rank or step may activate."""
        return tuple(dict.fromkeys(layer.branch for layer in self.layers if isinstance(layer, Linear) and layer.branch))

    def features(self) -> frozenset[str]:
        """The features that a replica must support for this model, as named in ReplicaPromises.model_features."""
        return frozenset(_features(self.layers))

    def tensors(self) -> tuple[Tensor, ...]:
        """All parameters and buffers, in the order of the layers, weight before bias."""
        return self._tensors

    @cached_property
    def _tensors(self) -> tuple[Tensor, ...]:
        return tuple(_tensors(self))

    def initial(self, seed: int, values: Kind) -> dict[str, Array]:
        """Initial parameters and buffers by name. Each rank uses another seed, and so starts with other values."""
        tensors = self.tensors()
        sizes = [math.prod(tensor.shape) for tensor in tensors]
        flat = numbers((sum(sizes),), self.dtype, values, key_of(seed), 1)
        made: dict[str, Array] = {}
        end = 0
        for position, (tensor, size) in enumerate(zip(tensors, sizes, strict=True)):
            end += size
            if not tensor.positive and tensor.dtype == self.dtype:
                made[tensor.name] = flat[end - size : end].reshape(tensor.shape).copy()
                continue
            key = key_of(seed, position)
            if not tensor.positive:
                made[tensor.name] = numbers(tensor.shape, tensor.dtype, values, key, 1)
                continue
            if tensor.dtype == "int64":  # too large for a float, so that a cast shows
                made[tensor.name] = np.asarray(abs(numbers(tensor.shape, "int64", "lattice", key, 1 << 60)))
            else:
                array = numbers(tensor.shape, tensor.dtype, values, key, 3)
                made[tensor.name] = abs(array) + array.dtype.type(1)
        return made


def mlp(sizes: tuple[int, ...], *, activation: Literal["relu", "tanh"] = "relu", **options: str | float) -> ModelSpec:
    """A multi-layer perceptron fc1, fc2, ... with `activation` between; options as ModelSpec's."""
    layers: list[Layer] = []
    for number, (inputs, outputs) in enumerate(pairwise(sizes), start=1):
        if layers:
            layers.append(Activation(activation))
        layers.append(Linear(f"fc{number}", inputs, outputs))
    return ModelSpec(tuple(layers), **options)  # type: ignore[arg-type]


def _width_in(layer: Layer) -> int:
    if isinstance(layer, (Linear, Head)):
        return layer.inputs
    return layer.features if isinstance(layer, (Scale, BatchNorm)) else 0


def _width_out(layer: Layer) -> int:
    if isinstance(layer, Linear):
        return layer.outputs
    return layer.features if isinstance(layer, (Scale, BatchNorm, Embedding)) else 0


def _problems(layers: tuple[Layer, ...]) -> Iterator[str]:
    if not any(map(_width_out, layers)):
        yield "no layer sets the number of features"
    named: dict[str, Layer] = {}
    width, outputs = 0, next(filter(None, map(_width_out, reversed(layers))), 0)
    for position, layer in enumerate(layers):
        if isinstance(layer, Embedding) and position:
            yield f"embedding {layer.name!r} is not the first layer"
        if width and _width_in(layer) and _width_in(layer) != width:
            yield f"layer {position} takes {_width_in(layer)} features, but gets {width}"
        width = _width_out(layer) or width
        if isinstance(layer, (Activation, Delay, Activity)):
            continue
        if layer.name in named:
            yield f"two layers are named {layer.name!r}"
        if isinstance(layer, Head) and layer.outputs != outputs:
            yield f"head {layer.name!r} has {layer.outputs} outputs, but the model has {outputs}, and both use the same targets"
        if isinstance(layer, Linear):
            if layer.branch and layer.inputs != layer.outputs:
                yield f"branch {layer.name!r} must keep the number of features"
            if layer.penalty and (layer.branch or layer.uses):
                yield f"{layer.name!r} has a penalty, but no weight of its own that every batch uses"
            if layer.replaced and (layer.uses or layer.penalty):
                yield f"{layer.name!r} replaces its weight, but does not own it, or has a penalty on it"
            if layer.uses is not None:
                other = named.get(layer.uses)
                same = isinstance(other, Linear) and (other.inputs, other.outputs, other.bias) == (
                    layer.inputs,
                    layer.outputs,
                    layer.bias,
                )
                if not same:
                    yield f"{layer.name!r} uses {layer.uses!r}, which is not an earlier linear layer of its shape"
        named[layer.name] = layer


def _features(layers: tuple[Layer, ...]) -> Iterator[str]:
    for layer in layers:
        yield from (name for name, kind, has in _FEATURES if isinstance(layer, kind) and has(layer))


_FEATURES: tuple[tuple[str, type, Callable[[Any], object]], ...] = (
    ("empty", Linear, lambda layer: not layer.inputs * layer.outputs),
    ("strided", Linear, lambda layer: layer.strided),
    ("tied", Linear, lambda layer: layer.uses),
    ("frozen", Linear, lambda layer: layer.frozen),
    ("branch", Linear, lambda layer: layer.branch),
    ("penalty", Linear, lambda layer: layer.penalty),
    ("replaced_parameters", Linear, lambda layer: layer.replaced),
    ("scale", Scale, lambda layer: not layer.buffer),
    ("buffer", Scale, lambda layer: layer.buffer),
    ("mixed_dtypes", Scale, lambda layer: layer.wide),
    ("batch_norm", BatchNorm, lambda layer: True),
    ("replaced_buffers", BatchNorm, lambda layer: layer.replaced),
    ("embedding", Embedding, lambda layer: not layer.sparse),
    ("sparse", Embedding, lambda layer: layer.sparse),
    ("delay", Delay, lambda layer: True),
    ("activity", Activity, lambda layer: True),
    ("auxiliary_head", Head, lambda layer: True),
)
"""The features of models, with the kind of layer that has each, and the condition."""


def _tensors(model: ModelSpec) -> Iterator[Tensor]:
    dtype = model.dtype
    for layer in model.layers:
        if isinstance(layer, Linear) and not layer.uses:
            role: Literal["learned", "frozen"] = "frozen" if layer.frozen else "learned"
            yield Tensor(f"{layer.name}.weight", (layer.outputs, layer.inputs), dtype, role, strided=layer.strided)
            if layer.bias:
                yield Tensor(f"{layer.name}.bias", (layer.outputs,), dtype, role)
        elif isinstance(layer, Head):
            yield Tensor(f"{layer.name}.weight", (layer.outputs, layer.inputs), dtype, "learned")
            if layer.bias:
                yield Tensor(f"{layer.name}.bias", (layer.outputs,), dtype, "learned")
        elif isinstance(layer, Scale):
            shape = (layer.features,) if layer.features else ()
            own = "float64" if layer.wide else dtype
            yield Tensor(f"{layer.name}.scale", shape, own, "buffer" if layer.buffer else "learned")
        elif isinstance(layer, BatchNorm):
            yield Tensor(f"{layer.name}.weight", (layer.features,), dtype, "learned")
            yield Tensor(f"{layer.name}.bias", (layer.features,), dtype, "learned")
            yield Tensor(f"{layer.name}.running_mean", (layer.features,), dtype, "buffer")
            yield Tensor(f"{layer.name}.running_var", (layer.features,), dtype, "buffer", positive=True)
            yield Tensor(f"{layer.name}.num_batches_tracked", (), "int64", "buffer", positive=True)
        elif isinstance(layer, Embedding):
            yield Tensor(f"{layer.name}.weight", (layer.vocabulary, layer.features), dtype, "learned")
