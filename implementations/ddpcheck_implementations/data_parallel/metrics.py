"""Global means out of local ones: a mean of means would weigh a short last batch as much as a full one."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np

from ddpcheck.contract.adapter import Collectives


def aggregate_metrics(collectives: Collectives, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """The mean of every metric over all samples of all ranks, from each rank's mean over its `count` samples.

    All ranks give the same names. A rank with count 0 takes no part, whatever its values are; if no rank has samples,
    there is no mean, and the result is empty. Every rank computes in float64 from the same gathered numbers in the
    same order, so all get the same bits.
    """
    if count < 0:
        raise ValueError(f"a mean over {count} samples: count must not be negative")
    names = sorted(metrics)
    # the names themselves are not sent: a checksum tells whether they agree
    row = np.array([zlib.crc32("\0".join(names).encode()), count, *(metrics[name] for name in names)], np.float64)
    rows = collectives.all_gather(row)
    differing = np.flatnonzero(rows[:, 0] != row[0])
    if len(differing):
        raise ValueError(
            f"rank {differing[0]} aggregates metrics of other names than {', '.join(names) or 'none'}: "
            "pass the same names on all ranks, with count 0 where there are no samples"
        )
    taking_part = rows[rows[:, 1] > 0]
    if not len(taking_part):
        return {}
    counts = taking_part[:, 1:2]
    means = (taking_part[:, 2:] * counts).sum(axis=0) / counts.sum()
    return dict(zip(names, means.tolist(), strict=True))
