"""A Network: the layers of a ModelSpec in a chain, its parameters and buffers, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np

from ddpcheck.models import spec
from ddpcheck.models.spec import ModelSpec
from ddpcheck.seeded_values import Array

from .layers import (
    BatchNorm,
    Delay,
    Embedding,
    Gradients,
    Layer,
    Linear,
    Place,
    Relu,
    ReplacingBatchNorm,
    ReplacingLinear,
    Scale,
    Tanh,
)
from .losses import make_loss, make_weighted_loss
from .terms import Activity, Head, Penalised, Term, shares

OnGradient = Callable[[str, Array | None], None]
"""A function of a learned parameter's name and complete gradient (None if unused), which it may keep."""


class Network:
    """A model of one process. Parameters and buffers are changed in place, so references stay valid. Only layers declared as
    `replaced` replace arrays.
    """

    def __init__(
        self,
        model: ModelSpec,
        initial: Mapping[str, Array],
        batch_norm: Callable[[str, dict[str, Array]], Layer] = BatchNorm,
    ) -> None:
        """batch_norm: makes a batch norm layer from its name and the network's arrays."""
        tensors = model.tensors()
        wrong = [t.name for t in tensors if t.name not in initial or initial[t.name].shape != t.shape]
        if wrong:
            raise ValueError(
                f"no initial values of the declared shape for {', '.join(wrong)}: pass all of ModelSpec.tensors()"
            )
        made = {t.name: np.array(initial[t.name], t.dtype, order="F" if t.strided else "C") for t in tensors}
        self.parameters = {t.name: made[t.name] for t in tensors if t.role != "buffer"}
        self._buffers = tuple(t.name for t in tensors if t.role == "buffer")
        self.tensors = made
        self._model, self._batch_norm = model, batch_norm
        self._learn({t.name for t in tensors if t.role == "learned"})
        self._loss = make_loss(model.loss, model.loss_scale)
        self._weighted_loss = make_weighted_loss(model.loss, model.loss_scale)

    @property
    def buffers(self) -> dict[str, Array]:
        return {name: self.tensors[name] for name in self._buffers}

    def _learn(self, names: Collection[str]) -> None:
        self.learned = tuple(name for name in self.parameters if name in names)
        self._nothing = Gradients.fromkeys(self.learned)
        self._layers = _chain(self._model, self.tensors, frozenset(self.learned), self._batch_norm)
        self.terms = tuple(layer for layer in self._layers if isinstance(layer, Term))
        for layer in self._layers:
            if isinstance(layer, ReplacingLinear):
                layer.renew = self._renew

    def _renew(self, name: str) -> Array:
        """Move a parameter to new memory, and leave the old memory unchanged."""
        new = self.tensors[name] = self.parameters[name] = self.tensors[name].copy(order="K")
        return new

    def set_trainable(self, layers: Collection[str], trainable: bool) -> None:
        """Make these layers trainable or frozen. Do not call this during backward."""
        switched = {name for name in self.parameters if name.rpartition(".")[0] in layers}
        self._learn({*self.learned, *switched} if trainable else {*self.learned} - switched)

    def backward(
        self,
        inputs: Array,
        targets: Array,
        branches: Collection[str],
        on_gradient: OnGradient,
        place: Place | None = None,
        weights: Array | None = None,
    ) -> float:
        """Forward in training mode, then backward. Returns the mean loss. Gradients are written where `place` says.

        weights: weights of the samples in a weighted mean.

        `on_gradient` is called exactly once for every learned parameter, in the reverse order of ModelSpec.tensors(),
        whatever branches are active. All ranks share this order, so gradients can be reduced during backward.
        """
        outputs = self._forward(inputs, branches, training=True)
        loss, dy = self._loss(outputs, targets) if weights is None else self._weighted_loss(outputs, targets, weights)
        if self.terms:
            each = shares(outputs, self._model.loss_scale, weights)
            loss += sum(term.of(targets, each) for term in self.terms)
        gradients = Gradients(self._nothing)
        gradients.place = place
        for layer in reversed(self._layers):
            if layer.branch is None or layer.branch in branches:
                dy = layer.backward(dy, gradients)
            for name in layer.finishes:
                on_gradient(name, gradients[name])
            if not layer.learns_before:
                break
        return loss

    def predict(self, inputs: Array, branches: Collection[str]) -> Array:
        """Return outputs in evaluation mode, without a change of state."""
        return self._forward(inputs, branches, training=False)

    def _forward(self, x: Array, branches: Collection[str], *, training: bool) -> Array:
        for layer in self._layers:
            if layer.branch is None or layer.branch in branches:
                x = layer.forward(x, training)
        return x


def _chain(
    model: ModelSpec,
    tensors: dict[str, Array],
    learned: frozenset[str],
    batch_norm: Callable[[str, dict[str, Array]], Layer],
) -> tuple[Layer, ...]:
    owners: dict[str, str] = {}
    layers: list[Layer] = []
    learns = False
    for declared in model.layers:
        if isinstance(declared, spec.BatchNorm):
            make = ReplacingBatchNorm if declared.replaced and batch_norm is BatchNorm else batch_norm
            layer = make(declared.name, tensors)
        else:
            layer = _layer(declared, tensors, learned, owners, model.loss)
        layer.learns_before = learns
        layers.append(layer)
        learns = learns or layer.learns
    return tuple(layers)


def _layer(
    declared: spec.Linear | spec.Activation | spec.Scale | spec.Embedding | spec.Delay | spec.Activity | spec.Head,
    tensors: dict[str, Array],
    learned: frozenset[str],
    owners: dict[str, str],
    loss: str,
) -> Layer:
    if isinstance(declared, spec.Activation):
        return Relu() if declared.function == "relu" else Tanh()
    if isinstance(declared, spec.Delay):
        return Delay(declared.forward, declared.backward)
    if isinstance(declared, spec.Linear):
        owner = owners[declared.name] = owners[declared.uses] if declared.uses else declared.name
        kind = Penalised if declared.penalty else ReplacingLinear if declared.replaced else Linear
        linear = kind(
            owner,
            tensors[f"{owner}.weight"],
            tensors[f"{owner}.bias"] if declared.bias else None,
            learns=f"{owner}.weight" in learned,
            owns=declared.uses is None,
            branch=declared.branch,
        )
        if isinstance(linear, Penalised):
            linear.coefficient = declared.penalty
        return linear
    if isinstance(declared, spec.Activity):
        return Activity(declared.coefficient)
    if isinstance(declared, spec.Head):
        return Head(declared, tensors, loss)
    if isinstance(declared, spec.Scale):
        return Scale(declared.name, tensors[f"{declared.name}.scale"], learns=not declared.buffer)
    return Embedding(declared.name, tensors[f"{declared.name}.weight"])
