"""Gradients since the last zero_grad: each rank's local gradients, and their reduction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..seeded_values import Array
from .bounded_values import Value, as_shown, combine, over_ranks
from .clipping import Clip, clipped
from .job_constants import Case
from .network import Shards

Presence = Literal["there", "none", "either"]
"""Whether a rank must hold an array, must hold None, or may hold None or zeros."""


@dataclass(frozen=True, slots=True)
class Gradient:
    """used: the ranks that used the parameter since zero_grad. synced: equal on all ranks. pending: left local by
    no_sync.
    """

    used: Array
    synced: Value | None = None
    pending: Value | None = None

    def sum(self, dtype: str) -> Value | None:
        """The sum of the synchronised and the local part; None if there is neither."""
        if self.synced is not None and self.pending is not None:
            return combine([(1, self.synced), (1, self.pending)], 1, dtype)
        return self.synced or self.pending


class Gradients:
    """The gradients of all trained parameters; `zeros` exist from the beginning. clipped: the clip, if it was the last
    operation.
    """

    def __init__(self, case: Case, learned: Iterable[str], zeros: Mapping[str, Value] | None = None) -> None:
        self._promised, self._dtype, self._size = case.promised, case.model.dtype, len(case.everyone)
        self._reduction_dtype = case.promised.replica.dtype_of_reduction(case.model.dtype)
        self._dtypes = {tensor.name: tensor.dtype for tensor in case.model.tensors()}
        nobody = np.zeros(self._size, bool)
        self.of: dict[str, Gradient] = {name: Gradient(nobody, (zeros or {}).get(name)) for name in learned}
        self._backwards, self._reduced = 0, False
        self.clipped: Clip | None = None

    def replaced(self, shown: Sequence[Mapping[str, Array | None]], like: Mapping[str, Value]) -> bool:
        """Take the gradients that the ranks show, which are exact. False if only some ranks show one, or if a parameter that
        is not trained has one.
        """
        if any(array is not None and name not in self.of for seen in shown for name, array in seen.items()):
            return False
        for name, gradient in self.of.items():
            value = as_shown(shown, name)
            if value is None:
                if any(seen.get(name) is not None for seen in shown):
                    return False
                self.of[name] = Gradient(np.zeros_like(gradient.used))
            elif value.exact.shape != like[name].exact.shape:
                return False
            elif gradient.pending is None:
                self.of[name] = Gradient(gradient.used, synced=value)
            else:
                # the reduced part, if there is one, stays as it is
                parts = [(1.0, value)] if gradient.synced is None else [(1.0, value), (-1.0, gradient.synced)]
                self.of[name] = Gradient(gradient.used, gradient.synced, combine(parts, 1, self._dtype))
        return True

    def sum(self, name: str) -> Value | None:
        return self.of[name].sum(self._dtype)

    def add(self, found: Mapping[str, Value], used: Mapping[str, Array]) -> None:
        """Add the local gradients of one more backward. used: the ranks that used each parameter, by name."""
        self._backwards += 1
        self.clipped = None
        for name, before in self.of.items():
            pending = before.pending
            if name in found:
                pending = Gradient(before.used, pending, found[name]).sum(self._dtype)
            self.of[name] = Gradient(before.used | used[name], before.synced, pending)

    def synchronise(self, shards: Shards, divisor: int) -> None:
        """Reduce local gradients, with the batch sizes and weights of the last backward, whose batches are `shards`.

        divisor: the number of ranks in a mean.
        """
        self._reduced = True
        for name, gradient in self.of.items():
            if gradient.pending is None:
                continue
            reduced = self._reduced_over_ranks(gradient.pending, shards, divisor)
            if gradient.synced is not None:
                # some implementations reduce the whole gradient again: the part that was equal on all ranks goes
                # through all roundings once more
                roundings = self._size + 3 + self._roundings_of(shards)
                reduced = combine([(1, gradient.synced), (1, reduced)], roundings, self._reduction_dtype)
            self.of[name] = Gradient(gradient.used, synced=reduced)

    def _reduced_over_ranks(self, pending: Value, shards: Shards, live: int) -> Value:
        weights, divisor = None, float(live)
        counts = shards.counts
        if shards.weights is not None:
            if self._promised.replica.sample_weights == "by_weight":
                weights = shards.weights.sum(axis=1)
                divisor = float(weights.sum()) or 1.0
        elif self._promised.replica.uneven_batches == "weighted" and (counts != counts[0]).any():
            weights, divisor = counts.astype(np.float64), float(counts.sum())
        if self._promised.replica.gradient == "sum":
            divisor /= live
        return over_ranks(pending, weights, divisor, self._reduction_dtype, self._roundings_of(shards))

    def _roundings_of(self, shards: Shards) -> int:
        """The roundings in a rank's share of all weights: a sum over rows, divided by a sum over ranks."""
        if shards.weights is None or self._promised.replica.sample_weights != "by_weight":
            return 0
        return self._size + int(shards.weights.shape[1])

    def clip(self, norm: Value, max_norm: float) -> None:
        def smaller(part: Value | None) -> Value | None:
            return None if part is None else clipped(part, norm, max_norm, self._dtype)

        sums = {name: value.exact for name in self.of if (value := self.sum(name)) is not None}
        self.clipped = Clip(sums, max_norm, {name: self._dtypes[name] for name in sums})
        for name, gradient in self.of.items():
            self.of[name] = Gradient(gradient.used, smaller(gradient.synced), smaller(gradient.pending))

    def presence(self, name: str) -> tuple[Presence, ...]:
        """Whether each rank must hold an array, None, or either."""
        gradient = self.of[name]
        everywhere: Presence = "there"
        if gradient.synced is None and self._backwards and not gradient.used.any():
            # an implementation may create zeros where it reduces gradients
            zeros: Presence = "there" if self._reduced else "either"
            everywhere = "none" if self._promised.replica.unused_gradient == "none" else zeros
        elif gradient.synced is None:
            return tuple("there" if used else "either" for used in gradient.used)
        return (everywhere,) * self._size

    def everywhere(self, name: str) -> bool:
        """Whether every rank must hold an array."""
        return set(self.presence(name)) == {"there"}
