"""Samples with weights, which are normalised by the wrong sum: a rank's own, the number of samples, or not at all."""

from __future__ import annotations

import math

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.models.spec import ModelSpec
from ddpcheck.values import Array

from ..base import PlainReplica, added, fault

BY_WEIGHT = "check_sample_weights_are_normalised_over_all_ranks"
EQUAL_RANKS = "check_sample_weights_are_normalised_per_rank"


class Weighing(PlainReplica):
    """Correct where ranks count equally: each normalises by its own sum of weights, and its gradient is averaged."""

    def backward(self, batch: Batch) -> float:
        self.before_forward()
        found: dict[str, Array] = {}

        def keep(name: str, gradient: Array | None) -> None:
            if gradient is not None:
                found[name] = gradient

        weights = self.weights_of(batch)
        network = self.network
        loss = network.backward(batch.inputs, batch.targets, batch.branches, keep, weights=weights) * self.factor(batch)
        often = self.factor(batch) * self.counts(batch)
        found = {name: np.asarray(gradient * often, gradient.dtype) for name, gradient in found.items()}
        self.local, self.latest = added(self.local, found), frozenset(found)
        if self.syncing:
            self.synchronise(len(batch.inputs))
        return loss

    def weights_of(self, batch: Batch) -> Array | None:
        return batch.weights

    def factor(self, batch: Batch) -> float:
        """What loss and gradient are multiplied by, beside being a weighted mean."""
        return 1.0

    def counts(self, batch: Batch) -> float:
        """How often this rank counts in the mean of the ranks."""
        return 1.0


class WholeBatch(Weighing):
    """Correct where ranks count by weight: each backward, in no_sync too, by the rank's share of all weights."""

    def counts(self, batch: Batch) -> float:
        if batch.weights is None:
            return 1.0
        own = batch.weights.sum(dtype=np.float64)
        return float(own * self.world / (self.comm.all_reduce(np.array([own]))[0] or 1.0))


own_means = fault("own-weighted-means", sample_weights="equal_ranks")(Weighing)
whole_batch = fault(
    "weights-of-the-whole-batch", seen_in=("huggingface/transformers#34242",), sample_weights="by_weight"
)(WholeBatch)


@fault(
    "each-rank-normalised-by-its-own-weights",
    BY_WEIGHT,
    seen_in=("huggingface/transformers#34242",),
    cause="weighted-means-averaged-equally",
    sample_weights="by_weight",
)
class OwnSum(Weighing):
    """The mask's sum is that of this rank's tokens, and the usual mean over ranks follows."""


@fault(
    "sample-weights-ignored",
    BY_WEIGHT,
    world_size=1,
    cause="sample-weights-ignored",
    sample_weights="by_weight",
)
class Ignored(WholeBatch):
    """The mask is taken, and never used in the loss."""

    def weights_of(self, batch: Batch) -> Array | None:
        return None


@fault(
    "masked-loss-divided-by-all-samples",
    EQUAL_RANKS,
    world_size=1,
    cause="divided-by-samples",
    sample_weights="equal_ranks",
)
class DividedBySamples(Weighing):
    """The weighted losses are added up and divided by the number of samples, masked ones included."""

    def factor(self, batch: Batch) -> float:
        return 1.0 if batch.weights is None else float(batch.weights.sum()) / len(batch.weights)


@fault(
    "masked-gradients-divided-by-all-samples",
    BY_WEIGHT,
    world_size=1,
    cause="divided-by-samples",
    sample_weights="by_weight",
)
class GradientsDividedBySamples(Weighing):
    """The loss that is told is right; gradients are divided by the number of samples of all ranks."""

    def counts(self, batch: Batch) -> float:
        return 1.0 if batch.weights is None else float(batch.weights.sum()) / len(batch.weights)


@fault(
    "rank-without-tokens-is-nan",
    EQUAL_RANKS,
    world_size=1,
    cause="mean-of-no-weight",
    sample_weights="equal_ranks",
)
class DividesByNothing(Weighing):
    """The sum of weights is divided by as it is, where it is 0, too."""

    def factor(self, batch: Batch) -> float:
        return 1.0 if batch.weights is None or batch.weights.any() else math.nan


@fault(
    "rank-without-tokens-left-out",
    EQUAL_RANKS,
    cause="summed-not-averaged",
    sample_weights="equal_ranks",
)
class EmptyRanksLeftOut(Weighing):
    """A rank without any weight is no part of the mean: the divisor is the number of the others."""

    def counts(self, batch: Batch) -> float:
        if batch.weights is None:
            return 1.0
        return float(self.world / (self.comm.all_reduce(np.array([float(batch.weights.any())]))[0] or 1.0))


@fault(
    "ranks-count-by-weight-unasked",
    EQUAL_RANKS,
    cause="ranks-counted-by-weight",
    sample_weights="equal_ranks",
)
class CountsByWeight(WholeBatch):
    """Ranks count by their sums of weights, though their weighted means are promised to count equally."""


@fault(
    "sum-of-weights-of-the-first-batch",
    BY_WEIGHT,
    cause="weight-sum-stale",
    sample_weights="by_weight",
)
class FirstSum(WholeBatch):
    """The sum over all ranks is taken for the first batch, and kept."""

    kept: float | None = None

    def counts(self, batch: Batch) -> float:
        if batch.weights is None:
            return 1.0
        own = batch.weights.sum(dtype=np.float64)
        if self.kept is None:
            self.kept = float(self.comm.all_reduce(np.array([own]))[0])
        return float(own * self.world / self.kept)


@fault(
    "weights-count-in-the-last-micro-batch",
    BY_WEIGHT,
    cause="accumulated-averaged-equally",
    sample_weights="by_weight",
)
class LastMicroBatchOnly(WholeBatch):
    """Inside no_sync, where nothing may be communicated, ranks count equally; what is gathered there stays as it is."""

    def counts(self, batch: Batch) -> float:
        return super().counts(batch) if self.syncing else 1.0


@fault(
    "masked-micro-batch-of-a-window-is-nan",
    BY_WEIGHT,
    cause="mean-of-no-weight",
    world_size=1,
    sample_weights="by_weight",
)
class NaNInWindows(WholeBatch):
    """Inside no_sync nobody looks whether there is any weight to divide by."""

    def factor(self, batch: Batch) -> float:
        return 1.0 if self.syncing or batch.weights is None or batch.weights.any() else math.nan


@fault(
    "masked-rank-forgets-its-window",
    EQUAL_RANKS,
    cause="weightless-rank-loses",
    world_size=1,
    sample_weights="equal_ranks",
)
class ForgetsItsWindow(Weighing):
    """A rank whose micro-batch has no weights gives zeros, and what it has gathered before is lost."""

    def weights_of(self, batch: Batch) -> Array | None:
        if batch.weights is not None and not batch.weights.any():
            self.local = {name: np.zeros_like(array) for name, array in self.local.items()}
        return batch.weights


@fault(
    "rank-masked-for-a-window-has-no-share",
    BY_WEIGHT,
    cause="weightless-rank-is-nan",
    sample_weights="by_weight",
)
class NoShareOfAWindow(WholeBatch):
    """A window's gradient is divided by all of the rank's weights in it, if there are several micro-batches."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self.sums: list[float] = []

    def counts(self, batch: Batch) -> float:
        self.sums.append(1.0 if batch.weights is None else float(batch.weights.sum()))
        often = super().counts(batch)
        sums = list(self.sums)
        if self.syncing:
            self.sums.clear()
        return math.nan if self.syncing and len(sums) > 1 and not any(sums) else often


@fault("weights-normalised-in-place", EQUAL_RANKS, cause="call-changes-batch", sample_weights="equal_ranks")
class NormalisedInPlace(Weighing):
    """The batch's weights are divided by their sum where they lie."""

    def backward(self, batch: Batch) -> float:
        loss = super().backward(batch)
        if batch.weights is not None:
            batch.weights[...] = batch.weights / (batch.weights.sum() or 1)
        return loss
