"""What losses and gradients would be if the samples' weights were taken for something else, for a diagnosis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..values import Array
from .rounding import by_rank
from .shares import Pass

_IGNORED = "the samples' weights are ignored: all samples count the same, masked ones included"


def losses_weighed_wrong(forward: Pass, losses: Array) -> Iterator[tuple[str, Array]]:
    """losses: every rank's own weighted mean, shape (ranks,)."""
    weights = forward.shards.weights
    if weights is None:
        return
    sums, counts = weights.sum(axis=1), np.maximum(forward.shards.counts, 1)
    total, world = sums.sum() or 1.0, len(sums)
    yield _IGNORED, forward.weighted(None).losses
    yield "every weight that is not 0 counts as 1, as those of a mask do", forward.weighted(1.0 * (weights > 0)).losses
    yield "rank 0's weights are taken for those of every rank", forward.weighted(weights[:1].repeat(world, 0)).losses
    yield "it is divided by the number of samples, but should be by the sum of their weights", losses * sums / counts
    yield "it is the sum of the weighted losses, but should be divided by the sum of the weights", losses * sums
    whole = "it is divided by the weights of all ranks, but should be this rank's own weighted mean, before reduction"
    yield whole, losses * sums / total
    yield f"{whole} (and is multiplied by the world size)", losses * sums * world / total


@dataclass(frozen=True, slots=True)
class SampleWeights:
    """Those of a synchronised gradient, (ranks, rows). earlier: those of the backwards before; counts: the ranks' numbers of
    samples; by_weight: whether ranks are promised to count by their sums of weights; ignored: each rank's own gradient, had
    all samples counted the same.
    """

    weights: Array
    earlier: Sequence[Array]
    counts: Array
    by_weight: bool
    ignored: Callable[[], Array]

    def gone_wrong(self, own: Array, last: Array) -> Iterator[tuple[str, Array]]:
        """own: each rank's gradient of its own weighted mean; last: that of the last micro-batch alone."""
        sums, sizes = self.weights.sum(axis=1), self.counts / max(self.counts.sum(), 1)
        total = sums.sum() or 1.0
        for rank in np.flatnonzero(sums == 0):
            nothing = f"rank {rank}, whose samples have no weight, takes part with NaN: 0 divided by 0, but it should add nothing"
            yield nothing, np.full(own.shape[1:], np.nan)
        if not self.by_weight and own[sums == 0].any():
            lost = "a rank without any weight in the last micro-batch has lost what it had accumulated before"
            kept = by_rank(sums > 0, own)
            yield lost, (own * kept).mean(axis=0)
        if self.by_weight:
            should = "but ranks should count by their sums of weights, which differ"
            yield f"the ranks' own weighted means are averaged with equal weights, {should}", own.mean(axis=0)
            yield f"the ranks' own weighted means are averaged by batch sizes, {should}", np.tensordot(sizes, own, 1)
            there = (self.weights > 0).sum(axis=1)
            by_number = np.tensordot(there / max(there.sum(), 1), own, 1)
            yield f"ranks count by their numbers of samples with any weight, {should}", by_number
            accumulated = (own - last).mean(axis=0) + np.tensordot(sums / total, last, 1)
            yield (
                f"what was accumulated before the last micro-batch is averaged with equal weights, {should}",
                accumulated,
            )
            for before in self.earlier:
                stale = np.tensordot(sums / (before.sum() or 1.0), own, 1)
                yield "it is divided by the weights of an earlier batch: their sum is not taken anew", stale
            whole = np.tensordot(sums / (np.trunc(sums).sum() or 1.0), own, 1)
            yield "it is divided by a sum of weights that is an integer: fractions are cut off", whole
        else:
            should = "but each rank's own weighted mean should count equally"
            yield f"ranks count by their sums of weights, {should}", np.tensordot(sums / total, own, 1)
            yield f"ranks count by their batch sizes, {should}", np.tensordot(sizes, own, 1)
        should = "but should be by the sum of their weights"
        weighted = own * by_rank(sums, own)
        per_sample = weighted / by_rank(np.maximum(self.counts, 1), own)
        yield f"it is divided by the number of samples, {should}", per_sample.mean(axis=0)
        yield f"it is summed over samples and averaged over ranks, {should}", weighted.mean(axis=0)
        yield f"it is summed over samples and ranks, {should}", weighted.sum(axis=0)
        ignored = self.ignored()
        yield _IGNORED, ignored.mean(axis=0)
        yield _IGNORED, np.tensordot(sizes, ignored, 1)
