"""Batch norm's running statistics after a forward pass in training mode."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..models.spec import BATCH_NORM_MOMENTUM, BatchNorm
from ..numerics import gamma
from .bounded_values import Value, combine
from .network import Evaluation, Shards


def running_statistics(
    layer: BatchNorm,
    old: Mapping[str, Value],
    found: Evaluation,
    shards: Shards,
    dtype: str,
    *,
    first: bool,
    momentum: float = BATCH_NORM_MOMENTUM,
) -> dict[str, Value]:
    """The layer's buffers on every rank, each moved towards the statistics of that rank's own batch (of all batches if
    together).

    Bounds are known for the model's first layer only, whose input is exact: the mean adds |x| <= max|x|, the variance
    (|x| + |mean|)^2 / (n - 1), of which n terms are at most 4 max^2 n / (n - 1) <= 8 max^2.
    """
    counter = old[f"{layer.name}.num_batches_tracked"]
    made = {f"{layer.name}.num_batches_tracked": Value(counter.exact + 1, counter.error)}
    roundings = 2 * shards.inputs.shape[1] * (len(shards.counts) if shards.together else 1) + 8
    rounding = gamma(roundings, dtype) + gamma(roundings, np.float64)
    mean, variance = found.moments[layer.name]
    largest = np.full_like(mean, np.inf)
    if first:
        largest[...] = abs(shards.inputs).max(axis=(0, 1) if shards.together else 1)
    for name, measured, size in (("running_mean", mean, largest), ("running_var", variance, 8 * largest**2)):
        before = old[f"{layer.name}.{name}"]
        new = Value(measured, None if before.error is None else rounding * size)
        terms = [(1 - momentum, before), (momentum, new)]
        made[f"{layer.name}.{name}"] = combine(terms, 4, dtype)
    return made
