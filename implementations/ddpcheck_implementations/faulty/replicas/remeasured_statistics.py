"""Replicas that remeasure batch norm's running statistics wrongly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.models.spec import ModelSpec
from ddpcheck.seeded_values import Array

from ...numpy_network import Network
from ...numpy_network.layers import BatchNorm
from ..base import PlainReplica, fault
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.replicas import after, around, gradients_dropped, in_place_of

REMEASURED = "check_remeasured_statistics_cover_all_samples"


class Measuring(BatchNorm):
    """Stores mean and unbiased variance of the last training pass."""

    measured: tuple[Array, Array]
    replaces = False

    def _track(self, mean: Array, unbiased: Array) -> None:
        self.measured = mean, unbiased
        super()._track(mean, unbiased)
        if self.replaces:
            self.mean[...], self.variance[...] = mean, unbiased


class Remeasuring(PlainReplica):
    """Correct: the ranks' statistics are combined with their sample counts as weights."""

    def make_network(self, model: ModelSpec, initial: Mapping[str, Array]) -> Network:
        self.norms: list[Measuring] = []

        def make(name: str, tensors: dict[str, Array]) -> Measuring:
            self.norms.append(Measuring(name, tensors))
            return self.norms[-1]

        return Network(model, initial, make)

    def remeasure(self, batch: Batch) -> None:
        counters = [norm.batches.copy() for norm in self.norms]
        self.network.backward(batch.inputs, batch.targets, batch.branches, lambda name, gradient: None)
        for norm, counter in zip(self.norms, counters, strict=True):
            norm.mean[...], norm.variance[...] = self.merged(*norm.measured, len(batch.inputs))
            norm.batches[...] = counter

    def merged(self, mean: Array, unbiased: Array, rows: int) -> tuple[Array, Array]:
        total = float(self.comm.all_reduce(np.array([float(rows)]))[0])
        common = self.comm.all_reduce(mean * rows) / total
        squares = unbiased * (rows - 1) + rows * (mean - common) ** 2
        return common, self.comm.all_reduce(squares) / (total - 1)


remeasuring = fault("remeasuring", seen_in=("facebookresearch/fvcore#152",), remeasures_statistics=True)(Remeasuring)


Merge = Callable[[Array, Array, int], tuple[Array, Array]]


@around("merged")
def mean_of_means(replica: Any, merged: Merge, mean: Array, unbiased: Array, rows: int) -> tuple[Array, Array]:
    return replica.comm.all_reduce(mean) / replica.world, merged(mean, unbiased, rows)[1]


@in_place_of("merged")
def own_moments(replica: PlainReplica, mean: Array, unbiased: Array, rows: int) -> tuple[Array, Array]:
    return mean, unbiased


@after("remeasure")
def batches_counted(replica: Remeasuring, batch: Batch) -> None:
    for norm in replica.norms:
        norm.batches += 1


@after("remeasure")
def statistics_replaced_from_then_on(replica: Remeasuring, batch: Batch) -> None:
    for norm in replica.norms:
        norm.replaces = True


# fmt: off
table(
    globals(),
    Fault("precise-bn-unweighted", "Remeasured means average the ranks' means with equal weights.",
          where=always, effect=mean_of_means.of(Remeasuring),
          caught_by=REMEASURED, cause="means-averaged-without-counts", seen_in=("facebookresearch/fvcore#152",),
          remeasures_statistics=True),
    Fault("statistics-re-estimated-per-rank", "Remeasured statistics are those of the rank's own samples.",
          where=always, effect=own_moments.of(Remeasuring),
          caught_by=REMEASURED, cause="normalised-by-own-batch", remeasures_statistics=True),
    Fault("re-estimation-counts", "remeasure() advances batch norm's counter.",
          where=always, effect=batches_counted.of(Remeasuring),
          caught_by=REMEASURED, cause="remeasure-counts-as-batch", seen_in=("facebookresearch/fvcore#152",),
          remeasures_statistics=True),
    Fault("re-estimation-clears-gradients", "remeasure() drops all gradients.",
          where=always, effect=after("remeasure")(gradients_dropped).of(Remeasuring),
          caught_by=REMEASURED, cause="gradients-taken-by", remeasures_statistics=True),
    Fault("re-estimation-leaves-its-momentum", "After remeasure(), each batch replaces the running statistics.",
          where=always, effect=statistics_replaced_from_then_on.of(Remeasuring),
          caught_by=REMEASURED, cause="remeasure-changes-mode", remeasures_statistics=True),
)
# fmt: on
