"""Replicas that ignore sample weights or normalise them by a wrong sum."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.models.spec import ModelSpec
from ddpcheck.seeded_values import Array

from ..base import PlainReplica, added, fault
from ..engine.circumstances import Circumstance, always
from ..engine.fault import Fault, table
from ..engine.replicas import Made, after, before, in_place_of, inside_no_sync

BY_WEIGHT = "check_sample_weights_are_normalised_over_all_ranks"
EQUAL_RANKS = "check_sample_weights_are_normalised_per_rank"


class Weighing(PlainReplica):
    """Correct if ranks have equal weight: each rank divides by its own sum of weights."""

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
        """A factor of loss and gradients, after the weighted mean."""
        return 1.0

    def counts(self, batch: Batch) -> float:
        """This rank's weight in the mean over ranks."""
        return 1.0


class WholeBatch(Weighing):
    """Correct if ranks are weighted by their weights: each backward uses the rank's share of all weights."""

    def counts(self, batch: Batch) -> float:
        if batch.weights is None:
            return 1.0
        own = batch.weights.sum(dtype=np.float64)
        return float(own * self.world / (self.comm.all_reduce(np.array([own]))[0] or 1.0))


own_means = fault("own-weighted-means", sample_weights="equal_ranks")(Weighing)
whole_batch = fault(
    "weights-of-the-whole-batch", seen_in=("huggingface/transformers#34242",), sample_weights="by_weight"
)(WholeBatch)


weighted = Circumstance("for a batch with weights", lambda use: use.argument.weights is not None)
weightless = Circumstance("without any weight", lambda use: not use.argument.weights.any())


@in_place_of("weights_of")
def no_weights(replica: PlainReplica, batch: Batch) -> None:
    """Give all samples equal weight."""


def sum_of_weights_by_samples(replica: PlainReplica, batch: Any) -> float:
    """Divide by the number of samples, including masked samples."""
    return float(batch.weights.sum()) / len(batch.weights)


def not_a_number(replica: PlainReplica, batch: Batch) -> float:
    """Divide by a sum of weights of 0."""
    return math.nan


@in_place_of("counts")
def divided_by_ranks_with_weights(replica: PlainReplica, batch: Any) -> float:
    return float(replica.world / (replica.comm.all_reduce(np.array([float(batch.weights.any())]))[0] or 1.0))


@fault(
    "sum-of-weights-of-the-first-batch",
    BY_WEIGHT,
    cause="weight-sum-stale",
    sample_weights="by_weight",
)
class FirstSum(WholeBatch):
    """The sum of weights over all ranks is that of the first batch."""

    kept: float | None = None

    def counts(self, batch: Batch) -> float:
        if batch.weights is None:
            return 1.0
        own = batch.weights.sum(dtype=np.float64)
        if self.kept is None:
            self.kept = float(self.comm.all_reduce(np.array([own]))[0])
        return float(own * self.world / self.kept)


@in_place_of("counts")
def equal_ranks(replica: PlainReplica, batch: Batch) -> float:
    """Communicate nothing inside no_sync, so ranks have equal weight."""
    return 1.0


@before("weights_of")
def accumulated_gradients_zeroed(replica: PlainReplica, batch: Batch) -> None:
    replica.local = {name: np.zeros_like(array) for name, array in replica.local.items()}


@fault(
    "rank-masked-for-a-window-has-no-share",
    BY_WEIGHT,
    cause="weightless-rank-is-nan",
    sample_weights="by_weight",
)
class NoShareOfAWindow(WholeBatch):
    """If all of a rank's micro-batches in a window have no weight, its gradient is NaN."""

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


@after("backward")
def weights_normalised_in_place(replica: PlainReplica, batch: Any) -> None:
    batch.weights[...] = batch.weights / (batch.weights.sum() or 1)


# fmt: off
table(
    globals(),
    Fault("each-rank-normalised-by-its-own-weights",
          "Each rank divides by its own sum of weights, although the sum over all ranks is promised.",
          where=always, effect=Made(Weighing),
          caught_by=BY_WEIGHT, cause="weighted-means-averaged-equally", seen_in=("huggingface/transformers#34242",),
          sample_weights="by_weight"),
    Fault("sample-weights-ignored", "Sample weights are ignored.",
          where=always, effect=no_weights.of(WholeBatch),
          caught_by=BY_WEIGHT, cause="sample-weights-ignored", world_size=1, sample_weights="by_weight"),
    Fault("masked-loss-divided-by-all-samples", "The loss is divided by the number of samples, including masked ones.",
          where=weighted,
          effect=in_place_of("factor")(sum_of_weights_by_samples).of(Weighing),
          caught_by=EQUAL_RANKS, cause="divided-by-samples", world_size=1, sample_weights="equal_ranks"),
    Fault("masked-gradients-divided-by-all-samples",
          "Gradients are divided by the number of samples, including masked ones.",
          where=weighted,
          effect=in_place_of("counts")(sum_of_weights_by_samples).of(Weighing),
          caught_by=BY_WEIGHT, cause="divided-by-samples", world_size=1, sample_weights="by_weight"),
    Fault("rank-without-tokens-is-nan", "The loss of a rank without weights is NaN.",
          where=weighted & weightless,
          effect=in_place_of("factor")(not_a_number).of(Weighing),
          caught_by=EQUAL_RANKS, cause="mean-of-no-weight", world_size=1, sample_weights="equal_ranks"),
    Fault("rank-without-tokens-left-out", "Ranks without weights are left out of the mean over ranks.",
          where=weighted, effect=divided_by_ranks_with_weights.of(Weighing),
          caught_by=EQUAL_RANKS, cause="summed-not-averaged", sample_weights="equal_ranks"),
    Fault("ranks-count-by-weight-unasked",
          "Ranks are weighted by their sums of weights, although equal ranks are promised.",
          where=always, effect=Made(WholeBatch),
          caught_by=EQUAL_RANKS, cause="ranks-counted-by-weight", sample_weights="equal_ranks"),
    Fault("weights-count-in-the-last-micro-batch",
          "Inside no_sync, ranks weigh equally instead of by their sums of weights.",
          where=inside_no_sync, effect=equal_ranks.of(WholeBatch),
          caught_by=BY_WEIGHT, cause="accumulated-averaged-equally", sample_weights="by_weight"),
    Fault("masked-micro-batch-of-a-window-is-nan", "The loss of a micro-batch without weights inside no_sync is NaN.",
          where=inside_no_sync & weighted & weightless,
          effect=in_place_of("factor")(not_a_number).of(WholeBatch),
          caught_by=BY_WEIGHT, cause="mean-of-no-weight", world_size=1, sample_weights="by_weight"),
    Fault("masked-rank-forgets-its-window", "A micro-batch without weights clears the rank's accumulated gradients.",
          where=weighted & weightless,
          effect=accumulated_gradients_zeroed.of(Weighing),
          caught_by=EQUAL_RANKS, cause="weightless-rank-loses", world_size=1, sample_weights="equal_ranks"),
    Fault("weights-normalised-in-place", "backward() divides the caller's weights by their sum.",
          where=weighted, effect=weights_normalised_in_place.of(Weighing),
          caught_by=EQUAL_RANKS, cause="call-changes-batch", sample_weights="equal_ranks"),
)
# fmt: on
