"""Losses: the mean over the samples, and its gradient with respect to the outputs.

The loss is 0 if the batch has no samples, or if the weights sum to 0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ddpcheck.seeded_values import Array

Loss = Callable[[Array, Array, float], tuple[float, Array]]
"""(outputs, targets or labels, weight of one sample) -> (loss, its gradient by the outputs)"""


def _squared_error(y: Array, targets: Array, weight: float) -> tuple[float, Array]:
    difference = y - targets
    loss = float((difference * difference).sum()) * (weight / 2)
    difference *= weight
    return loss, difference


def _linear(y: Array, targets: Array, weight: float) -> tuple[float, Array]:
    return float((y * targets).sum()) * weight, targets * weight


def _cross_entropy(y: Array, labels: Array, weight: float) -> tuple[float, Array]:
    shifted = y - y.max(axis=1, keepdims=True)  # so that exp cannot overflow
    powers = np.exp(shifted)
    totals = powers.sum(axis=1)
    rows = np.arange(len(y))
    loss = float((np.log(totals) - shifted[rows, labels]).sum()) * weight
    powers /= totals[:, None]
    powers[rows, labels] -= 1
    powers *= weight
    return loss, powers


_LOSSES: dict[str, Loss] = {"squared_error": _squared_error, "linear": _linear, "cross_entropy": _cross_entropy}


def make_loss(name: str, scale: float) -> Callable[[Array, Array], tuple[float, Array]]:
    """The loss of this name: `scale` times the mean over the samples."""
    of_samples = _LOSSES[name]

    def loss(y: Array, targets: Array) -> tuple[float, Array]:
        return of_samples(y, targets, scale / (len(y) or 1))

    return loss


def make_weighted_loss(name: str, scale: float) -> Callable[[Array, Array, Array], tuple[float, Array]]:
    """As make_loss, with a weight for each sample: `scale` times their weighted mean."""
    of_shares = make_shared_loss(name)

    def loss(y: Array, targets: Array, weights: Array) -> tuple[float, Array]:
        return of_shares(y, targets, weights * (scale / (float(weights.sum()) or 1.0)))

    return loss


def make_shared_loss(name: str) -> Callable[[Array, Array, Array], tuple[float, Array]]:
    """The sum of the samples' losses, each times the sample's own factor."""
    of_samples = _LOSSES[name]

    def loss(y: Array, targets: Array, shares: Array) -> tuple[float, Array]:
        dy, total = np.empty_like(y), 0.0
        for row, share in enumerate(shares.tolist()):
            one = slice(row, row + 1)
            found, dy[one] = of_samples(y[one], targets[one], share)
            total += found
        return total, dy

    return loss
