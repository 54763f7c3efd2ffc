"""Batch norm: what it measures, and what its backward pass adds up, over ranks with unequal batches if it is synchronised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ddpcheck.models.spec import BATCH_NORM_EPS, ModelSpec
from ddpcheck.values import Array

from ...numpy_network import Network
from ...numpy_network.layers import BatchNorm, Gradients, add
from ..base import PlainReplica, fault

GRADIENTS = "check_sync_batch_norm_gradients_equal_the_large_batch"
OWN = "check_local_batch_norm_uses_each_ranks_own_batch"
STEPS = "check_steps_with_batch_norm_follow_the_optimizer"
STATISTICS = "check_sync_batch_norm_running_statistics_cover_all_samples"


class AcrossRanks(BatchNorm):
    """All ranks' samples are one batch: its sums are added up over the ranks, and divided by their common count."""

    rows = 0.0

    def __init__(self, name: str, tensors: dict[str, Array], comm: Any, world: int) -> None:
        super().__init__(name, tensors)
        self.comm, self.world = comm, world

    def forward(self, x: Array, training: bool) -> Array:
        if not training:
            return super().forward(x, training)
        self.rows = self.count(len(x))
        mean = self.measured(x)
        centred = x - mean
        variance = self.measured(centred * centred)
        self._deviation = np.sqrt(variance + BATCH_NORM_EPS)
        self._normal = centred / self._deviation
        self._track(mean, variance * (self.rows / max(self.rows - 1, 1)))
        return np.asarray(self._normal * self.weight + self.bias, x.dtype)

    def backward(self, dy: Array, gradients: Gradients) -> Array:
        add(gradients, f"{self._name}.weight", (dy * self._normal).sum(axis=0))
        add(gradients, f"{self._name}.bias", dy.sum(axis=0))
        g = dy * self.weight
        spread = self.spread(g) + self._normal * self.spread(g * self._normal)
        return np.asarray((g - spread) / self._deviation, dy.dtype)

    def count(self, rows: int) -> float:
        return float(self.comm.all_reduce(np.array([float(rows)]))[0])

    def measured(self, values: Array) -> Array:
        """The mean over all samples, in the forward pass."""
        return np.asarray(self.comm.all_reduce(values.sum(axis=0)) / self.rows, values.dtype)

    def spread(self, values: Array) -> Array:
        """The mean over all samples, in the backward pass."""
        return AcrossRanks.measured(self, values)


class MeanOfMeans(AcrossRanks):
    def measured(self, values: Array) -> Array:
        return np.asarray(self.comm.all_reduce(values.mean(axis=0)) / self.world, values.dtype)


class UnweightedBackward(AcrossRanks):
    def spread(self, values: Array) -> Array:
        return np.asarray(self.comm.all_reduce(values.mean(axis=0)) / self.world, values.dtype)


class LocalBackward(AcrossRanks):
    def spread(self, values: Array) -> Array:
        return np.asarray(values.mean(axis=0), values.dtype)


class EmptyIsOne(AcrossRanks):
    def count(self, rows: int) -> float:
        return super().count(max(rows, 1))


class EmptyStaysAway(AcrossRanks):
    def backward(self, dy: Array, gradients: Gradients) -> Array:
        return super().backward(dy, gradients) if len(dy) else dy


class TwoOrMore(AcrossRanks):
    def count(self, rows: int) -> float:
        if rows < 2:
            raise ValueError(f"expected more than 1 value per channel when training, got {rows}")
        return super().count(rows)


class SynchronisedNorm(PlainReplica):
    """Correct: batch norm over all ranks' samples."""

    norm: type[AcrossRanks] = AcrossRanks

    def make_network(self, model: ModelSpec, initial: Mapping[str, Array]) -> Network:
        return Network(model, initial, partial(self.norm, comm=self.comm, world=self.world))


synchronised = fault("synchronised-batch-norm", seen_in=("pytorch/pytorch#14267",), batch_norm="synchronised")(
    SynchronisedNorm
)


@fault(
    "syncbn-mean-of-means",
    STATISTICS,
    GRADIENTS,
    seen_in=("PaddlePaddle/Paddle#32464", "mapillary/inplace_abn#68"),
    cause="means-averaged-without-counts",
    batch_norm="synchronised",
)
class SyncMeanOfMeans(SynchronisedNorm):
    """What batch norm measures is the plain mean of the ranks' means, whatever their batch sizes."""

    norm = MeanOfMeans


@fault(
    "syncbn-backward-unweighted",
    GRADIENTS,
    seen_in=("pytorch/pytorch#36382", "pytorch/pytorch#36688"),
    cause="batch-norm-backward-not-over-all",
    batch_norm="synchronised",
)
class SyncUnweightedBackward(SynchronisedNorm):
    """Forward merges with counts; backward averages the ranks' means with equal weights."""

    norm = UnweightedBackward


@fault(
    "syncbn-counts-an-empty-rank",
    STATISTICS,
    GRADIENTS,
    cause="statistics-divided-by-other-count",
    batch_norm="synchronised",
)
class SyncCountsAnEmptyRank(SynchronisedNorm):
    """A count of 0 is not divided by: a rank without samples counts as one sample."""

    norm = EmptyIsOne


@fault(
    "syncbn-empty-rank-stays-away",
    STATISTICS,
    GRADIENTS,
    seen_in=("pytorch/pytorch#36530", "facebookresearch/detectron2#1807"),
    cause="no-samples-not-handled",
    batch_norm="synchronised",
)
class SyncEmptyRankStaysAway(SynchronisedNorm):
    """Without samples there is no graph, and no backward that takes part in what the others add up."""

    norm = EmptyStaysAway


@fault(
    "batch-norm-synchronised-in-forward-only",
    GRADIENTS,
    cause="batch-norm-backward-not-over-all",
    batch_norm="synchronised",
)
class SyncLocalBackward(SynchronisedNorm):
    """Backward takes what was measured for this rank's own."""

    norm = LocalBackward


@fault(
    "syncbn-refuses-one-sample",
    GRADIENTS,
    STATISTICS,
    seen_in=("NVIDIA/apex#262", "pytorch/pytorch#36865"),
    cause="one sample per rank",
    batch_norm="synchronised",
)
class SyncTwoOrMore(SynchronisedNorm):
    """The check that a batch has more than one sample looks at the rank's own."""

    norm = TwoOrMore


@fault("batch-norm-not-synchronised", STATISTICS, GRADIENTS, cause="normalised-by-own-batch", batch_norm="synchronised")
class NotSynchronised(PlainReplica):
    """Promises synchronised batch norm, and measures each rank's own batch."""


class WeightForgotten(BatchNorm):
    def backward(self, dy: Array, gradients: Gradients) -> Array:
        return np.asarray(super().backward(dy, gradients) / self.weight, dy.dtype)


@fault("batch-norm-weight-missing-in-backward", OWN, cause="batch-norm-itself")
class ForgottenWeight(PlainReplica):
    """What batch norm passes back lacks the factor of its weight: weights that are still 1, as at the start, hide it."""

    def make_network(self, model: ModelSpec, initial: Mapping[str, Array]) -> Network:
        return Network(model, initial, WeightForgotten)


class OwnCount(AcrossRanks):
    def forward(self, x: Array, training: bool) -> Array:
        self.own = len(x)
        return super().forward(x, training)

    def _track(self, mean: Array, unbiased: Array) -> None:
        share = (1 - 1 / max(self.rows, 2)) / (1 - 1 / max(self.own, 2))
        super()._track(mean, np.asarray(unbiased * share, unbiased.dtype))


@fault("variance-unbiased-by-own-count", STATISTICS, cause="variance-by-own-samples", batch_norm="synchronised")
class SyncUnbiasedByOwn(SynchronisedNorm):
    """The variance of all samples is made unbiased by the number of this rank's."""

    norm = OwnCount


@fault("norms-do-not-decay", STEPS, cause="weight-decay-missing")
class NormsDoNotDecay(PlainReplica):
    """Scales and shifts of norms are in a group of their own, without the weight decay that was asked for."""

    def step(self) -> None:
        before = self.optimizer._spec  # type: ignore[attr-defined]  # both optimizers have it
        gradients = self._shown()
        norms = {name for name in gradients if name.startswith("norm")}
        self.optimizer.step({name: gradient for name, gradient in gradients.items() if name not in norms})
        self.optimizer._spec = replace(before, weight_decay=0.0)  # type: ignore[attr-defined]
        self.optimizer.step({name: gradients[name] for name in norms})
        self.optimizer._spec = before  # type: ignore[attr-defined]
