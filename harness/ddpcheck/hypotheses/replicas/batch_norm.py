"""Hypotheses about batch norm: statistics, losses and gradients of all ranks, remeasuring, and local batch norm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...causes import Cause, replicas, updates
from ...causes import batch_norm as causes
from ...job import Backward, Job, Remeasure
from ...seeded_values import Array
from ...trace import Trace

_NEAR = 1e-5
"""Relative difference of means that are equal but for rounding."""


@dataclass(frozen=True)
class WrongMeans:
    """Running means. got: by rank. own: (ranks, features), where each rank measures by itself. right: the expected mean."""

    got: Sequence[Array]
    own: Array
    right: Array

    @property
    def is_right(self) -> bool:
        return np.allclose(self.got, self.right, rtol=_NEAR)


@dataclass(frozen=True)
class WrongStatistics:
    """A wrong buffer after a backward, or the first of several. sure: the causes found so far.

    buffer: its name. means: the running means, which are told apart by `mean`, their name.
    """

    buffer: str
    mean: str
    means: WrongMeans
    sure: tuple[Cause, ...]

    @property
    def unexplained(self) -> bool:
        return not self.sure or updates.STATISTICS_PUT_TOGETHER.explains(self.sure)


@dataclass(frozen=True)
class WrongRemeasuring:
    """A wrong value in a Job that remeasures statistics. buffer: its name, if it is one. operation: the one that shows it."""

    job: Job
    trace: Trace
    buffer: str
    operation: int

    @property
    def means(self) -> WrongMeans:
        """After the first remeasuring."""
        job = self.job
        inputs, _ = job.data.arrays(job.model) if job.data and job.model else (np.zeros(0), None)
        first = next(operation for operation in job.operations if isinstance(operation, Remeasure))
        looks = self.trace.values(job.operations.index(first) + 1, "buffers")
        own = np.stack([inputs[list(rank)].mean(axis=0) for rank in first.samples])
        right = inputs[[sample for rank in first.samples for sample in rank]].mean(axis=0)
        return WrongMeans([buffers["norm.running_mean"] for buffers in looks], own, right)


@dataclass(frozen=True)
class WrongLoss:
    """A wrong loss of a rank, and the loss if each rank normalises by itself."""

    rank: int
    got: float
    own: float


@dataclass(frozen=True)
class WrongGradient:
    """A wrong gradient of a model with batch norm."""

    name: str
    got: Array
    exact: Array
    world_size: int


def single_sample_refused(job: Job, trace: Trace) -> Cause | None:
    """A rank failed, and the first batch of a rank has one sample: with others' samples, one is enough."""
    first = next(operation for operation in job.operations if isinstance(operation, Backward))
    hung = trace.first_failure is not None and trace.first_failure.outcome == "hung"
    return causes.SINGLE_SAMPLE_REFUSED() if min(map(len, first.samples)) == 1 and not hung else None


def mean_of_own_batch(of: WrongMeans) -> Cause | None:
    for rank, array in enumerate(() if of.is_right else of.got):
        if np.allclose(array, of.own[rank], rtol=_NEAR) or np.allclose(array, of.own[0], rtol=_NEAR):
            return causes.OWN_BATCH(rank=rank)
    return None


def means_without_counts(of: WrongMeans) -> Cause | None:
    mean = of.own.mean(axis=0)
    without = not of.is_right and all(np.allclose(array, mean, rtol=_NEAR) for array in of.got)
    return causes.MEANS_WITHOUT_COUNTS() if without else None


def variance_put_together(of: WrongStatistics) -> Cause | None:
    """The mean, which comes first, is right."""
    variance = of.mean != of.buffer and of.unexplained and _is_of(of.buffer, "running_var")
    return causes.VARIANCE_PUT_TOGETHER() if variance else None


def statistics_of_wrong_mean(of: WrongStatistics) -> Cause | None:
    if of.mean != of.buffer:
        return None
    return mean_of_own_batch(of.means) or means_without_counts(of.means)


def mean_divided_by_other_count(of: WrongStatistics) -> Cause | None:
    return causes.DIVIDED_BY_OTHER_COUNT() if of.mean == of.buffer and of.unexplained else None


def remeasure_counts(of: WrongRemeasuring) -> Cause | None:
    return causes.REMEASURE_COUNTS() if _is_of(of.buffer, "num_batches_tracked") else None


def remeasure_changes_mode(of: WrongRemeasuring) -> Cause | None:
    """The second backward is the first that is wrong."""
    done = of.job.operations[: of.operation]
    second = sum(isinstance(operation, Backward) for operation in done) == 2
    return causes.REMEASURE_CHANGES_MODE() if second else None


def remeasured_wrong_mean(of: WrongRemeasuring) -> Cause | None:
    return mean_of_own_batch(of.means) or means_without_counts(of.means)


def loss_of_own_batch(of: WrongLoss) -> Cause | None:
    return causes.OWN_BATCH(rank=of.rank) if np.isclose(of.got, of.own) else None


def loss_of_other_statistics(of: WrongLoss) -> Cause:
    return updates.STATISTICS_PUT_TOGETHER()


def batch_norm_reduced_twice(of: WrongGradient) -> Cause | None:
    layer, _, _ = of.name.partition(".")
    twice = layer.startswith("norm") and np.allclose(of.got, of.world_size * of.exact, rtol=1e-6)
    return causes.BATCH_NORM_REDUCED_TWICE(world_size=of.world_size) if twice else None


def backward_not_over_all(of: WrongGradient) -> Cause:
    return causes.BACKWARD_NOT_OVER_ALL()


def batch_norm_itself(sure: tuple[Cause, ...]) -> Cause | None:
    """No other hypothesis explains a wrong value of local batch norm. sure: the causes found so far."""
    return None if sure else replicas.BATCH_NORM_ITSELF()


def _is_of(buffer: str, kind: str) -> bool:
    return buffer.rpartition(".")[2] == kind
