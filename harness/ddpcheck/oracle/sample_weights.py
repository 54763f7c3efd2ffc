"""What losses and gradients would be if the samples' weights were taken for something else, for a diagnosis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ..values import Array
from .shares import Pass

_IGNORED = "the samples' weights are ignored: all samples count the same, masked ones included"


def losses_weighed_wrong(forward: Pass, losses: Array) -> Iterator[tuple[str, Array]]:
    """losses: every rank's own weighted mean, shape (ranks,)."""
    weights = forward.shards.weights
    if weights is None:
        return
    sums, counts = weights.sum(axis=1), np.maximum(forward.shards.counts, 1)
    total, world = sums.sum() or 1.0, len(sums)
    yield _IGNORED, forward.unweighted().losses
    yield "it is divided by the number of samples, but should be by the sum of their weights", losses * sums / counts
    yield "it is the sum of the weighted losses, but should be divided by the sum of the weights", losses * sums
    whole = "it is divided by the weights of all ranks, but should be this rank's own weighted mean, before reduction"
    yield whole, losses * sums / total
    yield f"{whole} (and is multiplied by the world size)", losses * sums * world / total


@dataclass(frozen=True, slots=True)
class SampleWeights:
    """Those of a synchronised gradient. sums: of each rank's weights; counts: of its samples; by_weight: whether ranks are
    promised to count by these sums; ignored: each rank's own gradient, had all samples counted the same.
    """

    sums: Array
    counts: Array
    by_weight: bool
    ignored: Callable[[], Array]

    def gone_wrong(self, own: Array) -> Iterator[tuple[str, Array]]:
        """own: each rank's gradient of its own weighted mean."""
        sizes = self.counts / max(self.counts.sum(), 1)
        total = self.sums.sum() or 1.0
        if self.by_weight:
            should = "but ranks should count by their sums of weights, which differ"
            yield f"the ranks' own weighted means are averaged with equal weights, {should}", own.mean(axis=0)
            yield f"the ranks' own weighted means are averaged by batch sizes, {should}", np.tensordot(sizes, own, 1)
        else:
            should = "but each rank's own weighted mean should count equally"
            yield f"ranks count by their sums of weights, {should}", np.tensordot(self.sums / total, own, 1)
            yield f"ranks count by their batch sizes, {should}", np.tensordot(sizes, own, 1)
        should = "but should be by the sum of their weights"
        weighted = own * self.sums.reshape(-1, *(1,) * (own.ndim - 1))
        per_sample = weighted / np.maximum(self.counts, 1).reshape(-1, *(1,) * (own.ndim - 1))
        yield f"it is divided by the number of samples, {should}", per_sample.mean(axis=0)
        yield f"it is summed over samples and averaged over ranks, {should}", weighted.mean(axis=0)
        yield f"it is summed over samples and ranks, {should}", weighted.sum(axis=0)
        ignored = self.ignored()
        yield _IGNORED, ignored.mean(axis=0)
        yield _IGNORED, np.tensordot(sizes, ignored, 1)
