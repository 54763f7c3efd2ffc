"""A ModelSpec as an nn.Module, and its loss, for torch engines under test."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ..models import spec
from ..models.spec import ModelSpec
from ..seeded_values import Array


class Loss(Protocol):
    def __call__(self, outputs: Any, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """The batch's loss, a 0-d tensor, from the module's training output; weights are the samples' weights."""
        ...


_WITHOUT_MODULE = spec.Activation, spec.Delay, spec.Activity

# values are set after all modules exist
_UNFILLED = torch.device("meta")


class _WithoutValues:
    """Keeps torch from drawing initial values that are replaced at once, which would take most of the time."""

    def reset_parameters(self) -> None:
        pass


class Linear(_WithoutValues, nn.Linear):
    pass


class ReplacingLinear(Linear):
    """A training forward moves the weight to new memory, as `weight.data = ...` does in weight tying, pruning and
    `.to()`.
    """

    def forward(self, input: Tensor) -> Tensor:  # torch's own name for it
        if self.training:
            self.weight.data = self.weight.data.clone()
        return super().forward(input)


class BatchNorm1d(_WithoutValues, nn.BatchNorm1d):
    pass


class ReplacingBatchNorm1d(BatchNorm1d):
    """A training forward gives the module new buffers, as `self.mean = 0.9 * self.mean + ...` does."""

    def forward(self, input: Tensor) -> Tensor:  # torch's own name for it
        if self.training:
            for name, buffer in tuple(self.named_buffers(recurse=False)):
                setattr(self, name, buffer.clone())
        return super().forward(input)


class Embedding(_WithoutValues, nn.Embedding):
    pass


class Chain(nn.Module):
    """The layers of a ModelSpec in order; a layer's parameters are found under its name.

    forward takes the active branches as a second argument. A model without branches is called with the inputs alone, so
    that a wrapper whose forward takes one argument can wrap it. In training, if the loss has auxiliary terms, it
    returns a tuple: the outputs, and the input of each Activity or the output of each Head, so that an engine that
    searches for parameters without a gradient finds those in use.
    """

    def __init__(self, model: ModelSpec) -> None:
        super().__init__()
        self._layers = model.layers
        for layer in model.layers:
            if isinstance(layer, _WITHOUT_MODULE) or (isinstance(layer, spec.Linear) and layer.uses):
                continue
            self.add_module(layer.name, _module_of(layer, getattr(torch, model.dtype)))

    def tie(self) -> None:
        """Give tied layers modules of their own that hold the parameters of the layers that they use. An engine that
        walks the modules, or lists parameters with duplicates, then meets them twice, as in a user's model.
        """
        for layer in self._layers:
            if isinstance(layer, spec.Linear) and layer.uses:
                own, other = _module_of(layer, torch.float32), self.get_submodule(layer.uses)
                own.weight, own.bias = other.weight, other.bias
                self.add_module(layer.name, own)

    def forward(self, inputs: Tensor, branches: tuple[str, ...] = ()) -> Any:
        x, beside = inputs, []
        for layer in self._layers:
            if isinstance(layer, spec.Activation):
                x = torch.relu(x) if layer.function == "relu" else torch.tanh(x)
            elif isinstance(layer, spec.Delay):
                x = _Delayed.apply(x, layer)  # type: ignore[no-untyped-call]  # torch has no annotation
            elif isinstance(layer, (spec.Activity, spec.Head)):
                beside += [self._beside(layer, x)] * self.training
            elif not isinstance(layer, spec.Linear) or layer.branch is None:
                x = self.get_submodule(layer.name)(x)
            elif layer.branch in branches:
                x = x + self.get_submodule(layer.name)(x)
        return (x, *beside) if beside else x

    def _beside(self, layer: spec.Activity | spec.Head, x: Tensor) -> Tensor:
        return x if isinstance(layer, spec.Activity) else self.get_submodule(layer.name)(x)


class Scaling(nn.Module):
    """y = x * scale, where the scale is learned or a buffer."""

    scale: Tensor

    def __init__(self, layer: spec.Scale, dtype: torch.dtype) -> None:
        super().__init__()
        wide = torch.float64 if layer.wide else dtype
        scale = torch.empty((layer.features,) if layer.features else (), dtype=wide, device=_UNFILLED)
        if layer.buffer:
            self.register_buffer("scale", scale)
        else:
            self.scale = nn.Parameter(scale)

    def leave_out_of_state(self) -> None:
        self.register_buffer("scale", self.scale, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return (x.to(self.scale.dtype) * self.scale).to(x.dtype)


class _Delayed(torch.autograd.Function):
    """A spec.Delay. Communicating threads continue, since a sleep does not hold the interpreter."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: spec.Delay) -> Tensor:
        ctx.seconds = layer.backward
        time.sleep(layer.forward)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        time.sleep(ctx.seconds)
        return *gradients, None


def _module_of(layer: spec.Layer, dtype: torch.dtype) -> nn.Module:
    if isinstance(layer, spec.Linear):
        kind = ReplacingLinear if layer.replaced else Linear
        linear = kind(layer.inputs, layer.outputs, layer.bias, device=_UNFILLED, dtype=dtype)
        return linear.requires_grad_(not layer.frozen)
    if isinstance(layer, spec.Head):
        return Linear(layer.inputs, layer.outputs, layer.bias, device=_UNFILLED, dtype=dtype)
    if isinstance(layer, spec.BatchNorm):
        made = ReplacingBatchNorm1d if layer.replaced else BatchNorm1d
        return made(layer.features, spec.BATCH_NORM_EPS, spec.BATCH_NORM_MOMENTUM, device=_UNFILLED, dtype=dtype)
    if isinstance(layer, spec.Embedding):
        return Embedding(layer.vocabulary, layer.features, sparse=layer.sparse, device=_UNFILLED, dtype=dtype)
    if isinstance(layer, spec.Scale):
        return Scaling(layer, dtype)
    raise TypeError(f"no torch module for a layer of kind {layer.kind!r}; add one to model.py")


def build_model(model: ModelSpec, initial: Mapping[str, Array]) -> nn.Module:
    """The module with copies of the initial values. ValueError if their names or shapes do not fit the model."""
    module = Chain(model)
    strided = {tensor.name for tensor in model.tensors() if tensor.strided}
    try:
        module.load_state_dict(
            {name: _laid_out(value, name in strided) for name, value in initial.items()}, assign=True
        )
    except RuntimeError as error:
        raise ValueError(
            f"the initial values do not fit the model, compare them with ModelSpec.tensors(): {error}"
        ) from None
    for layer in model.layers:
        if isinstance(layer, spec.Scale) and layer.unsaved:
            module.get_submodule(layer.name).leave_out_of_state()  # type: ignore[operator]  # of Scaling
    module.tie()
    return module


def _laid_out(value: Array, strided: bool) -> Tensor:
    # in memory of torch's own, because an engine that shards parameters may resize it
    return tensor_of(value.T).clone().T if strided else tensor_of(value).clone()


def build_named(name: str, models: Mapping[str, Callable[[], nn.Module]], seed: int) -> nn.Module:
    """A user's own model; its initial values follow from the seed."""
    if name not in models:
        raise ValueError(f"no model {name!r}; this implementation has {', '.join(sorted(models)) or 'none'}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return models[name]()


def loss_of(kind: str, scale: float = 1.0) -> Loss:
    """ModelSpec's losses. A batch without samples, or whose weights sum to 0, has the loss 0, so that its gradients are
    zeros and not NaN.
    """

    def loss(outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        if weights is not None:
            total = (_of_samples(kind, outputs, targets) * weights).sum()
            return total * (scale / (float(weights.sum()) or 1.0))
        if kind == "cross_entropy":
            if scale == 1 and len(outputs):
                return functional.cross_entropy(outputs, targets)  # the usual call, and the fastest
            total = functional.cross_entropy(outputs, targets, reduction="sum")
        elif kind == "linear":
            total = (outputs * targets).sum()
        else:
            total = (outputs - targets).square().sum() / 2
        return total * (scale / max(len(outputs), 1))

    return loss


def _of_samples(kind: str, outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of each sample."""
    if kind == "cross_entropy":
        return functional.cross_entropy(outputs, targets, reduction="none")
    return (outputs * targets).sum(1) if kind == "linear" else (outputs - targets).square().sum(1) / 2


def tensor_of(array: Array) -> Tensor:
    """A tensor with a copy of the array: torch accepts no negative strides, and must not write to the argument."""
    return torch.from_numpy(np.array(array, order="C"))


def tensor_sharing(array: Array) -> Tensor:
    """A tensor in the array's own memory, for the time of a call; a copy if the array is read-only or not
    C-contiguous.
    """
    return torch.from_numpy(array) if array.flags.carray else tensor_of(array)


def array_of(tensor: Tensor) -> Array:
    """An array with a copy of the tensor's values. If ranks hold a DTensor's shards, all of them must call it."""
    full_tensor = getattr(tensor, "full_tensor", None)
    whole = tensor if full_tensor is None else full_tensor()
    # a copy by torch: the owner of memory lent by numpy() cannot resize it
    return whole.detach().to_dense().cpu().clone(memory_format=torch.contiguous_format).numpy()


def laid_out_like(there: Tensor, whole: Tensor) -> Tensor:
    """The values of `whole` in the form of `there`: on its device and, if it is a DTensor, in the same shards."""
    values, mesh = whole.to(there.device), getattr(there, "device_mesh", None)
    if mesh is None or there.shape != whole.shape:
        return values
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(there, DTensor)
    return distribute_tensor(values, mesh, there.placements)
