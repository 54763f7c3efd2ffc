"""Means over the samples of all ranks: a mean of the ranks' means would give a short last batch too much weight."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np

from ddpcheck.contract.adapter import Collectives


def aggregate_metrics(collectives: Collectives, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Return the mean of every metric over all samples of all ranks, from each rank's mean over its `count` samples.

    All ranks pass the same names. Values of a rank with count 0 are ignored; the result is empty if no rank has samples.
    Every rank computes in float64 from the same gathered numbers in the same order, so all get the same bits.
    ValueError if names differ between ranks, or `count` is negative.
    """
    if count < 0:
        raise ValueError(f"a mean over {count} samples: count must not be negative")
    names = sorted(metrics)
    # ranks compare a checksum of the names
    row = np.array([zlib.crc32("\0".join(names).encode()), count, *(metrics[name] for name in names)], np.float64)
    rows = collectives.all_gather(row)
    differing = np.flatnonzero(rows[:, 0] != row[0])
    if len(differing):
        raise ValueError(
            f"rank {differing[0]} aggregates metrics of other names than {', '.join(names) or 'none'}: "
            "pass the same names on all ranks, with count 0 where there are no samples"
        )
    with_samples = rows[rows[:, 1] > 0]
    if not len(with_samples):
        return {}
    counts = with_samples[:, 1:2]
    means = (with_samples[:, 2:] * counts).sum(axis=0) / counts.sum()
    return dict(zip(names, means.tolist(), strict=True))
