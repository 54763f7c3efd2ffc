"""Batch norm's running statistics after a forward pass in training mode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..diagnosis import Evidence
from ..model import BATCH_NORM_MOMENTUM, BatchNorm
from ..numerics import gamma
from ..values import Array
from .network import Evaluation, Shards
from .rounding import Value, combine


@dataclass(frozen=True, slots=True)
class Tracked:
    """A buffer that one forward pass has moved; arrays have the ranks as first axis. counts: the ranks' batch sizes.
    together: all ranks' samples are measured as one batch. inside: the forward pass was inside no_sync().
    """

    before: Array
    after: Array
    counts: Array
    together: bool = False
    inside: bool = False

    def evidence(self, expected: Array, rank: int) -> Evidence:
        still = _STILL_INSIDE if self.inside else _STILL
        if self.after.dtype.kind == "i":
            twice: Array = 2 * self.after - self.before
            return Evidence(alternatives=((_TWICE, twice[rank]), (still, self.before[rank])))
        kept = 1 - BATCH_NORM_MOMENTUM
        twice = self.after + kept * (self.after - self.before)
        measured = (self.after - kept * self.before) / BATCH_NORM_MOMENTUM
        own = 1 - 1 / np.maximum(self.counts, 1)
        share = np.full_like(own, 1 - 1 / max(self.counts.sum(), 1)) if self.together else own
        biased = self._moved_by((measured.T * share).T)
        by_own = self._moved_by((measured.T * (share / np.where(own, own, share))).T)
        times = 1 - 1 / np.maximum(self.counts * len(self.counts), 2)
        by_times = self._moved_by((measured.T * (share / times)).T)
        swapped = BATCH_NORM_MOMENTUM * self.before + kept * measured
        known = (
            (_TWICE, twice),
            (still, self.before),
            ("it is the mean over all ranks", np.broadcast_to(self.after.mean(axis=0), self.after.shape)),
            ("the variance is the biased one, divided by n in place of n - 1", biased),
            ("the variance of all samples is made unbiased by the rank's own number of samples", by_own),
            (
                "the variance of all samples is made unbiased by the rank's own number of samples times the world size",
                by_times,
            ),
            ("momentum is taken for its opposite: what was measured has the weight of what was there", swapped),
        )
        moved = self.after[rank] - kept * self.before[rank]
        others = tuple(
            (f"it went on from rank {other}'s statistics, not from its own", moved + kept * before)
            for other, before in enumerate(self.before)
            if other != rank
        )
        mean = "it went on from the mean of all ranks' statistics", moved + kept * self.before.mean(axis=0)
        alternatives = (
            *((words, array[rank]) for words, array in known),
            *others,
            mean,
        )
        left = PUT_TOGETHER if self.together else ""
        return Evidence(len(expected), alternatives=alternatives, precision=False, otherwise=left)

    def _moved_by(self, measured: Array) -> Array:
        return (1 - BATCH_NORM_MOMENTUM) * self.before + BATCH_NORM_MOMENTUM * measured


_TWICE = (
    "one batch moved it twice: the forward pass ran twice in training mode, as when it is computed anew for backward"
)
PUT_TOGETHER = (
    "what the ranks measure is put together wrongly: without their numbers of samples, or what is between their means"
)
_STILL = "it was not moved: the forward pass ran in evaluation mode, or on a copy"
_STILL_INSIDE = "it was not moved inside no_sync(), where each micro-batch is a forward pass in training mode, too"


def running_statistics(
    layer: BatchNorm,
    old: Mapping[str, Value],
    found: Evaluation,
    shards: Shards,
    dtype: str,
    *,
    first: bool,
    momentum: float = BATCH_NORM_MOMENTUM,
) -> dict[str, Value]:
    """The layer's buffers on every rank, each moved towards what that rank's own batch (all batches together) measured.

    Bounds are known for the model's first layer only, where what is measured is exact: the mean adds |x| <= max|x|, the
    variance (|x| + |mean|)^2 / (n - 1), of which n terms are at most 4 max^2 n / (n - 1) <= 8 max^2.
    """
    counter = old[f"{layer.name}.num_batches_tracked"]
    made = {f"{layer.name}.num_batches_tracked": Value(counter.exact + 1, counter.error)}
    roundings = 2 * shards.inputs.shape[1] * (len(shards.counts) if shards.together else 1) + 8
    rounding = gamma(roundings, dtype) + gamma(roundings, np.float64)
    mean, variance = found.moments[layer.name]
    largest = np.full_like(mean, np.inf)
    if first:
        largest[...] = abs(shards.inputs).max(axis=(0, 1) if shards.together else 1)
    for name, measured, size in (("running_mean", mean, largest), ("running_var", variance, 8 * largest**2)):
        before = old[f"{layer.name}.{name}"]
        new = Value(measured, None if before.error is None else rounding * size)
        terms = [(1 - momentum, before), (momentum, new)]
        made[f"{layer.name}.{name}"] = combine(terms, 4, dtype)
    return made
