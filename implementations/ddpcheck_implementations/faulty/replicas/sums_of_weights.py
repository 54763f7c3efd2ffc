"""Replicas that use wrong sample weights or wrong sums of them."""

from __future__ import annotations

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.seeded_values import Array

from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.replicas import in_place_of
from .sample_weights import BY_WEIGHT, EQUAL_RANKS, Weighing, WholeBatch, weighted


def _over_ranks(replica: Weighing, number: float) -> float:
    return float(replica.comm.all_reduce(np.array([float(number)]))[0]) or 1.0


def _sum(batch: Batch) -> float:
    assert batch.weights is not None
    return float(batch.weights.sum(dtype=np.float64))


@in_place_of("weights_of")
def a_mask(replica: Weighing, batch: Batch) -> Array:
    """Replace every nonzero weight by 1."""
    assert batch.weights is not None
    return np.asarray(batch.weights > 0, batch.weights.dtype)


@in_place_of("weights_of")
def weights_of_rank_0(replica: Weighing, batch: Batch) -> Array:
    """Use rank 0's weights for this rank's samples."""
    return np.asarray(replica.comm.broadcast(batch.weights))


@in_place_of("weights_of")
def weights_in_the_other_order(replica: Weighing, batch: Batch) -> Array:
    """Use the weights in reversed order."""
    assert batch.weights is not None
    return batch.weights[::-1].copy()


def sum_of_own_weights(replica: Weighing, batch: Batch) -> float:
    """Turn the weighted mean into a weighted sum."""
    return _sum(batch)


def sum_of_own_weights_on_all_ranks(replica: Weighing, batch: Batch) -> float:
    """Turn the mean over ranks of weighted means into a sum of weighted sums."""
    return _sum(batch) * replica.world


def share_of_all_weights(replica: Weighing, batch: Batch) -> float:
    """Divide the loss by the sum of all ranks' weights, so that the ranks' losses sum to the global loss."""
    return _sum(batch) / _over_ranks(replica, _sum(batch))


def share_of_all_whole_weights(replica: Weighing, batch: Batch) -> float:
    """Truncate each rank's sum of weights to an integer."""
    return _sum(batch) * replica.world / _over_ranks(replica, np.trunc(_sum(batch)))


def share_of_all_weights_of_at_least_1(replica: Weighing, batch: Batch) -> float:
    """Guard against a division by zero as for counts of tokens."""
    return _sum(batch) * replica.world / max(1.0, _over_ranks(replica, _sum(batch)))


def share_of_all_weights_and_a_little(replica: Weighing, batch: Batch) -> float:
    """Guard against a division by zero as for numbers near 1."""
    return _sum(batch) * replica.world / (_over_ranks(replica, _sum(batch)) + 1e-6)


def share_of_all_samples_with_weight(replica: Weighing, batch: Batch) -> float:
    assert batch.weights is not None
    own = float((batch.weights > 0).sum())
    return own * replica.world / _over_ranks(replica, own)


def share_of_all_samples(replica: Weighing, batch: Batch) -> float:
    own = float(len(batch.inputs))
    return own * replica.world / _over_ranks(replica, own)


# fmt: off
table(
    globals(),
    Fault("weights-taken-for-a-mask", "Every weight other than 0 counts as 1.",
          where=weighted, effect=a_mask.of(WholeBatch),
          caught_by=BY_WEIGHT, cause="sample-weights-as-mask", world_size=1, sample_weights="by_weight"),
    Fault("weights-broadcast-from-rank-0", "Every rank uses rank 0's weights.",
          where=weighted, effect=weights_of_rank_0.of(Weighing),
          caught_by=EQUAL_RANKS, cause="sample-weights-of-rank-0", sample_weights="equal_ranks"),
    Fault("weights-in-another-order-than-samples", "Weights are in another order than their samples.",
          where=weighted, effect=weights_in_the_other_order.of(Weighing),
          caught_by=EQUAL_RANKS, cause="other-sample-weights", world_size=1, sample_weights="equal_ranks"),
    Fault("weighted-loss-summed", "The loss is a weighted sum instead of a weighted mean.",
          where=weighted, effect=in_place_of("factor")(sum_of_own_weights).of(Weighing),
          caught_by=EQUAL_RANKS, cause="weighted-sum-not-divided", world_size=1, sample_weights="equal_ranks"),
    Fault("weighted-gradient-summed", "Gradients are weighted sums instead of weighted means.",
          where=weighted, effect=in_place_of("counts")(sum_of_own_weights).of(Weighing),
          caught_by=BY_WEIGHT, cause="summed-over-samples", sample_weights="by_weight"),
    Fault("weighted-gradient-summed-over-ranks", "Gradients are weighted sums, summed over ranks.",
          where=weighted,
          effect=in_place_of("counts")(sum_of_own_weights_on_all_ranks).of(Weighing),
          caught_by=BY_WEIGHT, cause="summed-over-samples-and-ranks", sample_weights="by_weight"),
    Fault("loss-divided-by-all-weights",
          "The loss is divided by the sum of all ranks' weights instead of the rank's own.",
          where=weighted, effect=in_place_of("factor")(share_of_all_weights).of(Weighing),
          caught_by=BY_WEIGHT, cause="divided-by-all-weights", sample_weights="by_weight"),
    Fault("sums-of-weights-as-integers", "The sum of weights is truncated to an integer on each rank.",
          where=weighted,
          effect=in_place_of("counts")(share_of_all_whole_weights).of(Weighing),
          caught_by=BY_WEIGHT, cause="weight-sum-truncated", sample_weights="by_weight"),
    Fault("sum-of-weights-at-least-1", "A sum of weights below 1 counts as 1.",
          where=weighted,
          effect=in_place_of("counts")(share_of_all_weights_of_at_least_1).of(Weighing),
          caught_by=BY_WEIGHT, cause="weight-sum-at-least-1", sample_weights="by_weight"),
    Fault("sum-of-weights-plus-a-little", "The sum of weights that divides is larger by 10^-6.",
          where=weighted,
          effect=in_place_of("counts")(share_of_all_weights_and_a_little).of(Weighing),
          caught_by=BY_WEIGHT, cause="weight-sum-plus", sample_weights="by_weight"),
    Fault("ranks-count-by-unmasked-samples",
          "Ranks are weighted by their number of unmasked samples instead of their sum of weights.",
          where=weighted,
          effect=in_place_of("counts")(share_of_all_samples_with_weight).of(Weighing),
          caught_by=BY_WEIGHT, cause="weighted-means-averaged-by-number", sample_weights="by_weight"),
    Fault("ranks-count-by-all-samples",
          "Ranks are weighted by their number of samples instead of their sum of weights.",
          where=always, effect=in_place_of("counts")(share_of_all_samples).of(Weighing),
          caught_by=EQUAL_RANKS, cause="weighted-means-averaged-by-size", sample_weights="equal_ranks"),
)
# fmt: on
