"""Hypotheses about wrongly used sample weights, with the losses and gradients that each predicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...causes import Cause
from ...causes import sample_weights as causes
from ...oracle.bounded_values import by_rank
from ...oracle.passes import Pass
from ...seeded_values import Array
from .passes import weighted


def losses_weighed_wrong(forward: Pass, losses: Array) -> Iterator[tuple[Cause, Array]]:
    """Losses by other weights. losses: every rank's own weighted mean, shape (ranks,)."""
    weights = forward.shards.weights
    if weights is None:
        return
    sums, counts = weights.sum(axis=1), np.maximum(forward.shards.counts, 1)
    total, world = sums.sum() or 1.0, len(sums)
    if total < 1:
        yield causes.WEIGHT_SUM_AT_LEAST_1(), losses * sums
        for added in _GUARDS:
            yield causes.WEIGHT_SUM_PLUS(added=added), losses * sums / (sums + added)
    yield causes.WEIGHTS_IGNORED(), weighted(forward, None).losses
    yield causes.WEIGHTS_AS_MASK(), weighted(forward, 1.0 * (weights > 0)).losses
    yield causes.WEIGHTS_OF_RANK_0(), weighted(forward, weights[:1].repeat(world, 0)).losses
    yield causes.DIVIDED_BY_SAMPLES(), losses * sums / counts
    yield causes.WEIGHTED_SUM_NOT_DIVIDED(), losses * sums
    yield causes.DIVIDED_BY_ALL_WEIGHTS(), losses * sums / total
    yield causes.DIVIDED_BY_ALL_WEIGHTS(), losses * sums * world / total


_GUARDS = tuple(10.0**-power for power in range(12, 2, -1))
"""Small numbers that are added to a sum of weights, against a division by zero."""


@dataclass(frozen=True, slots=True)
class SampleWeights:
    """The sample weights of a synchronised gradient, (ranks, rows). earlier: those of the previous backwards; counts:
    the ranks' numbers of samples; by_weight: whether ranks are promised to count by their sums of weights; ignored:
    each rank's own gradient with equal weights.
    """

    weights: Array
    earlier: Sequence[Array]
    counts: Array
    by_weight: bool
    ignored: Callable[[], Array]

    def gone_wrong(self, own: Array, last: Array) -> Iterator[tuple[Cause, Array]]:
        """Gradients by other weights. own: each rank's gradient of its own weighted mean; last: of the last micro-batch
        alone.
        """
        sums, sizes = self.weights.sum(axis=1), self.counts / max(self.counts.sum(), 1)
        total = sums.sum() or 1.0
        for rank in np.flatnonzero(sums == 0):
            yield causes.WEIGHTLESS_RANK_IS_NAN(rank=int(rank)), np.full(own.shape[1:], np.nan)
        if not self.by_weight and own[sums == 0].any():
            kept = by_rank(sums > 0, own)
            yield causes.WEIGHTLESS_RANK_LOSES(), (own * kept).mean(axis=0)
        if total < 1:
            yield causes.WEIGHT_SUM_AT_LEAST_1(), np.tensordot(sums, own, 1)
            yield causes.WEIGHT_SUM_AT_LEAST_1(), (own * by_rank(sums, own)).mean(axis=0)
            for added in _GUARDS:
                share = sums / (total + added) if self.by_weight else sums / (sums + added) / len(sums)
                yield causes.WEIGHT_SUM_PLUS(added=added), np.tensordot(share, own, 1)
        if self.by_weight:
            yield causes.WEIGHTED_MEANS_EQUAL(), own.mean(axis=0)
            yield causes.WEIGHTED_MEANS_BY_SIZE(due="count by sums of weights"), np.tensordot(sizes, own, 1)
            there = (self.weights > 0).sum(axis=1)
            by_number = np.tensordot(there / max(there.sum(), 1), own, 1)
            yield causes.WEIGHTED_MEANS_BY_NUMBER(), by_number
            accumulated = (own - last).mean(axis=0) + np.tensordot(sums / total, last, 1)
            yield causes.ACCUMULATED_AVERAGED_EQUALLY(), accumulated
            for before in self.earlier:
                stale = np.tensordot(sums / (before.sum() or 1.0), own, 1)
                yield causes.WEIGHT_SUM_STALE(), stale
            whole = np.tensordot(sums / (np.trunc(sums).sum() or 1.0), own, 1)
            yield causes.WEIGHT_SUM_TRUNCATED(), whole
        else:
            yield causes.RANKS_BY_WEIGHT(), np.tensordot(sums / total, own, 1)
            yield causes.WEIGHTED_MEANS_BY_SIZE(due="count equally"), np.tensordot(sizes, own, 1)
        summed = own * by_rank(sums, own)
        per_sample = summed / by_rank(np.maximum(self.counts, 1), own)
        yield causes.DIVIDED_BY_SAMPLES(), per_sample.mean(axis=0)
        yield causes.SUMMED_OVER_SAMPLES(), summed.mean(axis=0)
        yield causes.SUMMED_OVER_SAMPLES_AND_RANKS(), summed.sum(axis=0)
        ignored = self.ignored()
        yield causes.WEIGHTS_IGNORED(), ignored.mean(axis=0)
        yield causes.WEIGHTS_IGNORED(), np.tensordot(sizes, ignored, 1)
