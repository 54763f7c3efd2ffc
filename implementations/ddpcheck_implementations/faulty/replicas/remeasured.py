"""Batch norm's running statistics, measured anew over all ranks' samples."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ddpcheck.adapter import Batch
from ddpcheck.model import ModelSpec
from ddpcheck.values import Array

from ...numpy_network import Network
from ...numpy_network.layers import BatchNorm
from ..base import PlainReplica, fault


class Measuring(BatchNorm):
    """It remembers what its last training pass measured: mean and unbiased variance."""

    measured: tuple[Array, Array]

    def _track(self, mean: Array, unbiased: Array) -> None:
        self.measured = mean, unbiased
        super()._track(mean, unbiased)


class Remeasuring(PlainReplica):
    """Correct: the ranks' moments are merged by their numbers of samples."""

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


remeasuring = fault("remeasuring", "facebookresearch/fvcore#152", remeasures_statistics=True)(Remeasuring)


@fault(
    "precise-bn-unweighted",
    "facebookresearch/fvcore#152",
    "check_remeasured_statistics_are_those_of_all_samples",
    words="without their counts",
    remeasures_statistics=True,
)
class Unweighted(Remeasuring):
    """The ranks' means are averaged with equal weights, whatever their numbers of samples."""

    def merged(self, mean: Array, unbiased: Array, rows: int) -> tuple[Array, Array]:
        common = self.comm.all_reduce(mean) / self.world
        return common, super().merged(mean, unbiased, rows)[1]


@fault(
    "re-estimated on each rank alone",
    "classic",
    "check_remeasured_statistics_are_those_of_all_samples",
    words="its own batch",
    remeasures_statistics=True,
)
class Alone(Remeasuring):
    """Every rank measures its own samples."""

    def merged(self, mean: Array, unbiased: Array, rows: int) -> tuple[Array, Array]:
        return mean, unbiased
