"""Forward and backward passes under a hypothesis, for a diagnosis: one layer's part, another derivative of relu at 0,
lost rows of an embedding, other weights, other values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from ...causes import Cause
from ...causes import gradients as causes
from ...models.spec import Activation, Embedding, Linear, ModelSpec, Tensor
from ...oracle.network import Evaluation, evaluate
from ...oracle.passes import Pass
from ...seeded_values import Array


def shares(forward: Pass, name: str) -> dict[str, Array]:
    """For each layer that uses the parameter `name`: that layer's part of the ranks' local gradients."""
    model = forward.model
    owner, _, part = name.rpartition(".")
    tied = [layer.name for layer in model.layers if isinstance(layer, Linear) and layer.uses]
    users = [owner, *(user for user in tied if _owner(model, user) == owner)]
    layers = tuple(replace(layer, uses=None) if isinstance(layer, Linear) else layer for layer in model.layers)
    values = {**forward.fixed, **forward.learned}
    apart = {
        f"{user}.{each}": values[f"{_owner(model, user)}.{each}"]
        for user in tied
        for each in ("weight", "bias")
        if f"{_owner(model, user)}.{each}" in values
    }
    learned = {**forward.learned, **apart}
    found = evaluate(replace(model, layers=layers), learned, forward.fixed, forward.shards).gradients
    return {user: found[f"{user}.{part}"] for user in users if f"{user}.{part}" in found}


def _owner(model: ModelSpec, name: str) -> str:
    uses = {layer.name: layer.uses for layer in model.layers if isinstance(layer, Linear) and layer.uses}
    while name in uses:
        name = uses[name]
    return name


def layers_gone_wrong(forward: Pass, name: str, own: Array) -> Iterator[tuple[Cause, Array]]:
    """The ranks' local gradients (right ones: `own`) if a layer computed something else."""
    for slope in (0.5, 1.0):
        array = _bent(forward, name, slope)
        if array is not None:
            yield causes.RELU_AT_ZERO(slope=slope), array
    first = forward.model.layers[0]
    if isinstance(first, Embedding) and name == f"{first.name}.weight":
        yield from _rows(forward, name, own)


def _bent(forward: Pass, name: str, at_zero: float) -> Array | None:
    """The ranks' local gradients with that derivative of relu at 0; None if no relu has an input of 0."""
    if not any(isinstance(layer, Activation) and layer.function == "relu" for layer in forward.model.layers):
        return None
    found = evaluate(forward.model, forward.learned, forward.fixed, replace(forward.shards, at_zero=at_zero))
    return found.gradients.get(name) if any((entered == 0).any() for entered in found.kinks) else None


def _rows(forward: Pass, name: str, own: Array) -> Iterator[tuple[Cause, Array]]:
    """Hypotheses about an embedding, whose gradient has a row for each id."""
    ids, weight = forward.shards.inputs, forward.learned[name]
    ranks, places = np.arange(len(ids))[:, None], np.arange(ids.shape[1])
    # as if each position of the batch had its own row
    apart = {**forward.learned, name: weight[ranks, ids]}
    shards = replace(forward.shards, inputs=np.broadcast_to(places, ids.shape))
    rows = evaluate(forward.model, apart, forward.fixed, shards).gradients[name]
    last = np.zeros_like(own)
    for rank, count in enumerate(forward.shards.counts):
        last[rank, ids[rank, :count]] = rows[rank, :count]
    yield causes.REPEATED_ID_COUNTS_ONCE(), last
    for number, which in ((0, "first"), (-1, "last")):
        padding = own.copy()
        padding[:, number] = 0
        yield causes.ID_TAKEN_FOR_PADDING(which=which), padding


def weighted(forward: Pass, weights: Array | None) -> Evaluation:
    """The losses and gradients of every rank with these sample weights; None: equal weights."""
    return evaluate(forward.model, forward.learned, forward.fixed, replace(forward.shards, weights=weights))


def kinds_of_values(
    initial: Mapping[str, Array], described: Iterable[Tensor]
) -> Iterator[tuple[str, Mapping[str, Array]]]:
    """The values that ranks may have kept at construction: their kind in words, and those of this kind."""
    roles = {tensor.name: tensor.role for tensor in described}
    kinds = (
        ("frozen parameters", ("frozen",)),
        ("buffers", ("buffer",)),
        ("parameters", ("learned", "frozen")),
        ("parameters and buffers", ("learned", "frozen", "buffer")),
    )
    for what, chosen in kinds:
        yield what, {name: array for name, array in initial.items() if roles[name] in chosen}


def at_values(forward: Pass, values: Mapping[str, Array]) -> Evaluation:
    """The losses and gradients of every rank with some tensors replaced."""
    learned = {name: values.get(name, array) for name, array in forward.learned.items()}
    fixed = {name: values.get(name, array) for name, array in forward.fixed.items()}
    return evaluate(forward.model, learned, fixed, forward.shards)
