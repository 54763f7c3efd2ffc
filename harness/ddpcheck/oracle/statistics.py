"""Batch norm's running statistics after a forward pass in training mode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..causes import updates as causes
from ..diagnosis import Evidence
from ..models.spec import BATCH_NORM_MOMENTUM, BatchNorm
from ..numerics import gamma
from ..seeded_values import Array
from .bounded_values import Value, combine
from .network import Evaluation, Shards


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
        still = (causes.STATISTICS_STILL_IN_NO_SYNC if self.inside else causes.STATISTICS_STILL)()
        if self.after.dtype.kind == "i":
            twice: Array = 2 * self.after - self.before
            return Evidence(alternatives=((causes.STATISTICS_TWICE(), twice[rank]), (still, self.before[rank])))
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
            (causes.STATISTICS_TWICE(), twice),
            (still, self.before),
            (causes.STATISTICS_MEAN(), np.broadcast_to(self.after.mean(axis=0), self.after.shape)),
            (causes.VARIANCE_BIASED(), biased),
            (causes.VARIANCE_BY_OWN(), by_own),
            (causes.VARIANCE_BY_TIMES(), by_times),
            (causes.MOMENTUM_SWAPPED(), swapped),
        )
        moved = self.after[rank] - kept * self.before[rank]
        others = tuple(
            (causes.STATISTICS_FROM_RANK(rank=other), moved + kept * before)
            for other, before in enumerate(self.before)
            if other != rank
        )
        mean = causes.STATISTICS_FROM_MEAN(), moved + kept * self.before.mean(axis=0)
        alternatives = (
            *((cause, array[rank]) for cause, array in known),
            *others,
            mean,
        )
        left = (causes.STATISTICS_PUT_TOGETHER(),) * self.together
        return Evidence(len(expected), alternatives=alternatives, precision=False, otherwise=left)

    def _moved_by(self, measured: Array) -> Array:
        return (1 - BATCH_NORM_MOMENTUM) * self.before + BATCH_NORM_MOMENTUM * measured


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
    """The layer's buffers on every rank, each moved towards the statistics of that rank's own batch (of all batches together).

    Bounds are known for the model's first layer only, where its input is exact: the mean adds |x| <= max|x|, the
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
