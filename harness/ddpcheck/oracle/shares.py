"""What a pass would have given otherwise, for a diagnosis: one layer's part, another derivative of relu at 0, other weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..model import Activation, Linear, ModelSpec
from ..values import Array
from .network import Evaluation, Shards, evaluate


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

    def bent(self, name: str, at_zero: float) -> Array | None:
        """The ranks' local gradients if relu had that derivative at 0; None if nothing enters a relu as 0."""
        if not any(isinstance(layer, Activation) and layer.function == "relu" for layer in self.model.layers):
            return None
        found = evaluate(self.model, self.learned, self.fixed, replace(self.shards, at_zero=at_zero))
        return found.gradients.get(name) if any((entered == 0).any() for entered in found.kinks) else None

    def weighted(self, weights: Array | None) -> Evaluation:
        """What every rank would have found with these weights of its samples; None: if all counted the same."""
        return evaluate(self.model, self.learned, self.fixed, replace(self.shards, weights=weights))

    def _owner(self, name: str) -> str:
        uses = {layer.name: layer.uses for layer in self.model.layers if isinstance(layer, Linear) and layer.uses}
        while name in uses:
            name = uses[name]
        return name
