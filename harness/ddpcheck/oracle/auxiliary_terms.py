"""Auxiliary terms of a loss, which are added to the terms of the network's outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import autograd.numpy
import numpy

from ..models.spec import Activity, Head, Linear, ModelSpec
from ..seeded_values import Array

np: Any = autograd.numpy  # as in network.py


KINDS_OF_TERMS: dict[type[object], str] = {
    Linear: "weight penalty",
    Activity: "activity term",
    Head: "auxiliary-head term",
}
"""The names of auxiliary terms, by the class of their layers."""


def terms_of(model: ModelSpec) -> dict[type, str]:
    """The names of a model's auxiliary terms, by the class of their layers."""
    features = {Linear: "penalty", Activity: "activity", Head: "auxiliary_head"}
    return {kind: words for kind, words in KINDS_OF_TERMS.items() if features[kind] in model.features()}


@dataclass(frozen=True)
class Beside:
    """Terms with the ranks as first axis, and their coefficients in a sample's loss, of the same shape.

    of_rows: the second axis is samples; otherwise every sample's loss has these terms.
    """

    terms: Any
    coefficients: Array
    of_rows: bool = True


def penalties(model: ModelSpec, tensors: Mapping[str, Any]) -> Iterator[Beside]:
    """Penalties on weights, in the form in which the network's forward takes them."""
    for layer in model.layers:
        if isinstance(layer, Linear) and layer.penalty:
            weight = tensors[f"{layer.name}.weight"]
            yield Beside(np.square(weight), numpy.full(weight.shape, layer.penalty / 2), of_rows=False)


def flattened(
    model: ModelSpec, terms: Any, weighted: Array, beside: Sequence[Beside], weights: Array, *, majorant: bool
) -> tuple[Any, Array]:
    """All terms of the loss in one array (ranks, n), and their weights. weights: of each row in its rank's loss."""
    scale = abs(model.loss_scale) if majorant else model.loss_scale
    once = numpy.asarray(scale * weights.any(axis=1))
    found, often = [terms], [weighted]
    for one in beside:
        coefficients = abs(one.coefficients) if majorant else one.coefficients
        found.append(one.terms)
        often.append(coefficients * (weights[:, :, None] if one.of_rows else once.reshape(-1, 1, 1)))
    ranks = len(weights)
    flat = np.concatenate([np.reshape(array, (ranks, -1)) for array in found], axis=1)
    return flat, numpy.concatenate([array.reshape(ranks, -1) for array in often], axis=1)
