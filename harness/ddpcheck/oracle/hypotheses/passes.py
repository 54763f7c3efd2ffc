"""Forward and backward passes under a hypothesis, for a diagnosis: one layer's part, another derivative of relu at 0, rows of an
embedding that are lost, other weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ...causes import Cause
from ...causes import gradients as causes
from ...models.spec import Activation, Embedding, Linear, ModelSpec
from ...seeded_values import Array
from ..network import Evaluation, Shards, evaluate


@dataclass(frozen=True)
class Pass:
    """One forward and backward of all ranks: the model, its values with the ranks as first axis, and the batch."""

    model: ModelSpec
    learned: Mapping[str, Array]
    fixed: Mapping[str, Array]
    shards: Shards

    def shares(self, name: str) -> dict[str, Array]:
        """By layer that uses the parameter `name`: that layer's part of the ranks' local gradients."""
        owner, _, part = name.rpartition(".")
        tied = [layer.name for layer in self.model.layers if isinstance(layer, Linear) and layer.uses]
        users = [owner, *(user for user in tied if self._owner(user) == owner)]
        layers = tuple(replace(layer, uses=None) if isinstance(layer, Linear) else layer for layer in self.model.layers)
        values = {**self.fixed, **self.learned}
        apart = {
            f"{user}.{each}": values[f"{self._owner(user)}.{each}"]
            for user in tied
            for each in ("weight", "bias")
            if f"{self._owner(user)}.{each}" in values
        }
        learned = {**self.learned, **apart}
        found = evaluate(replace(self.model, layers=layers), learned, self.fixed, self.shards).gradients
        return {user: found[f"{user}.{part}"] for user in users if f"{user}.{part}" in found}

    def gone_wrong(self, name: str, own: Array) -> Iterator[tuple[Cause, Array]]:
        """The ranks' local gradients (right ones: `own`) if a layer computed something else."""
        for slope in (0.5, 1.0):
            array = self._bent(name, slope)
            if array is not None:
                yield causes.RELU_AT_ZERO(slope=slope), array
        first = self.model.layers[0]
        if isinstance(first, Embedding) and name == f"{first.name}.weight":
            yield from self._rows(name, own)

    def _bent(self, name: str, at_zero: float) -> Array | None:
        """The ranks' local gradients if relu had that derivative at 0; None if nothing enters a relu as 0."""
        if not any(isinstance(layer, Activation) and layer.function == "relu" for layer in self.model.layers):
            return None
        found = evaluate(self.model, self.learned, self.fixed, replace(self.shards, at_zero=at_zero))
        return found.gradients.get(name) if any((entered == 0).any() for entered in found.kinks) else None

    def _rows(self, name: str, own: Array) -> Iterator[tuple[Cause, Array]]:
        """Of an embedding, whose gradient has a row for each id."""
        ids, weight = self.shards.inputs, self.learned[name]
        ranks, places = np.arange(len(ids))[:, None], np.arange(ids.shape[1])
        # as if each place of the batch had a row of its own
        apart = {**self.learned, name: weight[ranks, ids]}
        shards = replace(self.shards, inputs=np.broadcast_to(places, ids.shape))
        rows = evaluate(self.model, apart, self.fixed, shards).gradients[name]
        last = np.zeros_like(own)
        for rank, count in enumerate(self.shards.counts):
            last[rank, ids[rank, :count]] = rows[rank, :count]
        yield causes.REPEATED_ID_COUNTS_ONCE(), last
        for number, which in ((0, "first"), (-1, "last")):
            padding = own.copy()
            padding[:, number] = 0
            yield causes.ID_TAKEN_FOR_PADDING(which=which), padding

    def weighted(self, weights: Array | None) -> Evaluation:
        """The losses and gradients of every rank with these sample weights; None: equal weights."""
        return evaluate(self.model, self.learned, self.fixed, replace(self.shards, weights=weights))

    def _owner(self, name: str) -> str:
        uses = {layer.name: layer.uses for layer in self.model.layers if isinstance(layer, Linear) and layer.uses}
        while name in uses:
            name = uses[name]
        return name
