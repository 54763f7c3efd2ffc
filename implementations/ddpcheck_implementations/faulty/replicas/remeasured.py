"""Batch norm's running statistics, measured anew over all ranks' samples."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.models.spec import ModelSpec
from ddpcheck.values import Array

from ...numpy_network import Network
from ...numpy_network.layers import BatchNorm
from ..base import PlainReplica, fault

REMEASURED = "check_remeasured_statistics_cover_all_samples"


class Measuring(BatchNorm):
    """It remembers what its last training pass measured: mean and unbiased variance."""

    measured: tuple[Array, Array]
    replaces = False

    def _track(self, mean: Array, unbiased: Array) -> None:
        self.measured = mean, unbiased
        super()._track(mean, unbiased)
        if self.replaces:
            self.mean[...], self.variance[...] = mean, unbiased


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


remeasuring = fault("remeasuring", seen_in=("facebookresearch/fvcore#152",), remeasures_statistics=True)(Remeasuring)


@fault(
    "precise-bn-unweighted",
    REMEASURED,
    seen_in=("facebookresearch/fvcore#152",),
    cause="means-averaged-without-counts",
    remeasures_statistics=True,
)
class Unweighted(Remeasuring):
    """The ranks' means are averaged with equal weights, whatever their numbers of samples."""

    def merged(self, mean: Array, unbiased: Array, rows: int) -> tuple[Array, Array]:
        common = self.comm.all_reduce(mean) / self.world
        return common, super().merged(mean, unbiased, rows)[1]


@fault(
    "statistics-re-estimated-per-rank",
    REMEASURED,
    cause="normalised-by-own-batch",
    remeasures_statistics=True,
)
class Alone(Remeasuring):
    """Every rank measures its own samples."""

    def merged(self, mean: Array, unbiased: Array, rows: int) -> tuple[Array, Array]:
        return mean, unbiased


@fault(
    "re-estimation-counts",
    REMEASURED,
    seen_in=("facebookresearch/fvcore#152",),
    cause="remeasure-counts-as-batch",
    remeasures_statistics=True,
)
class Counts(Remeasuring):
    """The forward pass that measures moves the counters of batches."""

    def remeasure(self, batch: Batch) -> None:
        super().remeasure(batch)
        for norm in self.norms:
            norm.batches += 1


@fault(
    "re-estimation-clears-gradients",
    REMEASURED,
    cause="gradients-taken-by",
    remeasures_statistics=True,
)
class ClearsGradients(Remeasuring):
    """It ends with zero_grad."""

    def remeasure(self, batch: Batch) -> None:
        super().remeasure(batch)
        self.zero_grad()


@fault(
    "re-estimation-leaves-its-momentum",
    REMEASURED,
    cause="remeasure-changes-mode",
    remeasures_statistics=True,
)
class LeavesItsMomentum(Remeasuring):
    """Batch norm is set to replace its statistics by what it measures, and is not set back."""

    def remeasure(self, batch: Batch) -> None:
        super().remeasure(batch)
        for norm in self.norms:
            norm.replaces = True
