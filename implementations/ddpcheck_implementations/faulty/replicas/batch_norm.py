"""Batch norm with wrong statistics or a wrong backward, local or synchronised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ddpcheck.models.spec import BATCH_NORM_EPS, ModelSpec
from ddpcheck.seeded_values import Array

from ...numpy_network import Network
from ...numpy_network.layers import BatchNorm, Gradients, add
from ..base import PlainReplica, fault
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.replicas import Made, in_place_of, settings

GRADIENTS = "check_sync_batch_norm_gradients_equal_the_large_batch"
OWN = "check_local_batch_norm_uses_each_ranks_own_batch"
STEPS = "check_steps_with_batch_norm_follow_the_optimizer"
STATISTICS = "check_sync_batch_norm_running_statistics_cover_all_samples"


class AcrossRanks(BatchNorm):
    """Batch norm over the samples of all ranks: sums are added over ranks and divided by the global count."""

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
        """The mean over all samples in the forward pass."""
        return np.asarray(self.comm.all_reduce(values.sum(axis=0)) / self.rows, values.dtype)

    def spread(self, values: Array) -> Array:
        """The mean over all samples in the backward pass."""
        return AcrossRanks.measured(self, values)


class SynchronisedNorm(PlainReplica):
    """Correct: batch norm over the samples of all ranks."""

    norm: type[AcrossRanks] = AcrossRanks

    def make_network(self, model: ModelSpec, initial: Mapping[str, Array]) -> Network:
        return Network(model, initial, partial(self.norm, comm=self.comm, world=self.world))


synchronised = fault("synchronised-batch-norm", seen_in=("pytorch/pytorch#14267",), batch_norm="synchronised")(
    SynchronisedNorm
)


class LargeEps(BatchNorm):
    """A layer that a conversion has made anew, without the eps of the old one."""

    def forward(self, x: Array, training: bool) -> Array:
        if not training or not len(x):
            return super().forward(x, training)
        mean, variance = x.mean(axis=0), x.var(axis=0)
        self._deviation = np.sqrt(variance + 1e-3)
        self._normal = (x - mean) / self._deviation
        self._track(mean, variance * (len(x) / max(len(x) - 1, 1)))
        return np.asarray(self._normal * self.weight + self.bias, x.dtype)


class Converted(PlainReplica):
    """Batch norm is made anew with its default eps."""

    def make_network(self, model: ModelSpec, initial: Mapping[str, Array]) -> Network:
        return Network(model, initial, LargeEps)


def norm(**methods: Callable[..., Any]) -> Made:
    """Synchronised batch norm with other methods."""
    name = "And".join(method.__name__ for method in methods.values())
    return Made(SynchronisedNorm, norm=type(name, (AcrossRanks,), methods))


def mean_of_means(norm: AcrossRanks, values: Array) -> Array:
    """Ranks have equal weight, whatever their batch sizes."""
    return np.asarray(norm.comm.all_reduce(values.mean(axis=0)) / norm.world, values.dtype)


def one_at_least(norm: AcrossRanks, rows: int) -> float:
    """A rank without samples counts as one sample."""
    return AcrossRanks.count(norm, max(rows, 1))


def no_backward_without_samples(norm: AcrossRanks, dy: Array, gradients: Gradients) -> Array:
    """A rank without samples also skips the all-reduces."""
    return AcrossRanks.backward(norm, dy, gradients) if len(dy) else dy


def own_mean(norm: AcrossRanks, values: Array) -> Array:
    return np.asarray(values.mean(axis=0), values.dtype)


def more_than_one_on_each_rank(norm: AcrossRanks, rows: int) -> float:
    if rows < 2:
        raise ValueError(f"expected more than 1 value per channel when training, got {rows}")
    return AcrossRanks.count(norm, rows)


class WeightForgotten(BatchNorm):
    def backward(self, dy: Array, gradients: Gradients) -> Array:
        return np.asarray(super().backward(dy, gradients) / self.weight, dy.dtype)


@in_place_of("make_network")
def weight_missing_in_backward(replica: PlainReplica, model: ModelSpec, initial: Mapping[str, Array]) -> Network:
    """The result is right while all weights are 1."""
    return Network(model, initial, WeightForgotten)


class OwnCount(AcrossRanks):
    def forward(self, x: Array, training: bool) -> Array:
        self.own = len(x)
        return super().forward(x, training)

    def _track(self, mean: Array, unbiased: Array) -> None:
        share = (1 - 1 / max(self.rows, 2)) / (1 - 1 / max(self.own, 2))
        super()._track(mean, np.asarray(unbiased * share, unbiased.dtype))


@in_place_of("step")
def no_weight_decay_of_norms(replica: Any) -> None:
    """Batch norm's parameters are a separate group of the optimizer."""
    before, gradients = settings(replica), replica._shown()
    norms = {name for name in gradients if name.startswith("norm")}
    replica.optimizer.step({name: gradient for name, gradient in gradients.items() if name not in norms})
    replica.optimizer._spec = replace(before, weight_decay=0.0)
    replica.optimizer.step({name: gradients[name] for name in norms})
    replica.optimizer._spec = before


# fmt: off
table(
    globals(),
    Fault("syncbn-mean-of-means", "Synchronised batch norm averages the ranks' means with equal weights.",
          where=always, effect=norm(measured=mean_of_means),
          caught_by=(STATISTICS, GRADIENTS), cause="means-averaged-without-counts",
          seen_in=("PaddlePaddle/Paddle#32464", "mapillary/inplace_abn#68"), batch_norm="synchronised"),
    Fault("syncbn-backward-unweighted",
          "Synchronised batch norm's backward averages the ranks' means with equal weights.",
          where=always, effect=norm(spread=mean_of_means),
          caught_by=GRADIENTS, cause="batch-norm-backward-not-over-all",
          seen_in=("pytorch/pytorch#36382", "pytorch/pytorch#36688"), batch_norm="synchronised"),
    Fault("syncbn-counts-an-empty-rank", "Synchronised batch norm counts a rank without samples as one sample.",
          where=always, effect=norm(count=one_at_least),
          caught_by=(STATISTICS, GRADIENTS), cause="statistics-divided-by-other-count", batch_norm="synchronised"),
    Fault("syncbn-empty-rank-stays-away", "A rank without samples takes no part in synchronised batch norm's backward.",
          where=always, effect=norm(backward=no_backward_without_samples),
          caught_by=(STATISTICS, GRADIENTS), cause="no-samples-not-handled",
          seen_in=("pytorch/pytorch#36530", "facebookresearch/detectron2#1807"), batch_norm="synchronised"),
    Fault("batch-norm-synchronised-in-forward-only",
          "Synchronised batch norm's backward uses only the rank's own samples.",
          where=always, effect=norm(spread=own_mean),
          caught_by=GRADIENTS, cause="batch-norm-backward-not-over-all", batch_norm="synchronised"),
    Fault("syncbn-refuses-one-sample", "Synchronised batch norm raises an error on a rank with one sample.",
          where=always, effect=norm(count=more_than_one_on_each_rank),
          caught_by=(GRADIENTS, STATISTICS), cause="single-sample-refused",
          seen_in=("NVIDIA/apex#262", "pytorch/pytorch#36865"), batch_norm="synchronised"),
    Fault("batch-norm-not-synchronised",
          "Batch norm normalises by the rank's own batch, although it should be synchronised.",
          where=always, effect=Made(PlainReplica),
          caught_by=(STATISTICS, GRADIENTS), cause="normalised-by-own-batch", batch_norm="synchronised"),
    Fault("batch-norm-weight-missing-in-backward", "Batch norm's backward omits its weight.",
          where=always, effect=weight_missing_in_backward,
          caught_by=OWN, cause="batch-norm-itself"),
    Fault("variance-unbiased-by-own-count",
          "Synchronised batch norm corrects its variance by the rank's own sample count.",
          where=always, effect=Made(SynchronisedNorm, norm=OwnCount),
          caught_by=STATISTICS, cause="variance-by-own-samples", batch_norm="synchronised"),
    Fault("batch-norm-eps-lost", "A conversion makes batch norm anew, with an eps of 1e-3.",
          where=always, effect=Made(Converted),
          caught_by=OWN, cause="batch-norm-eps"),
    Fault("norms-do-not-decay", "Weight decay leaves out the parameters of batch norm.",
          where=always, effect=no_weight_decay_of_norms,
          caught_by=STEPS, cause="weight-decay-missing"),
)
# fmt: on
