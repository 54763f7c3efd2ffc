"""Hypotheses about batch norm's running statistics: mistakes in their last update."""

from __future__ import annotations

import numpy as np

from ...causes import updates as causes
from ...models.spec import BATCH_NORM_MOMENTUM
from ...oracle.origins import Tracked
from ...seeded_values import Array
from ..arrays import Evidence


def of_statistics(tracked: Tracked, expected: Array, rank: int) -> Evidence:
    still = (causes.STATISTICS_STILL_IN_NO_SYNC if tracked.inside else causes.STATISTICS_STILL)()
    if tracked.after.dtype.kind == "i":
        twice: Array = 2 * tracked.after - tracked.before
        return Evidence(alternatives=((causes.STATISTICS_TWICE(), twice[rank]), (still, tracked.before[rank])))
    kept = 1 - BATCH_NORM_MOMENTUM
    twice = tracked.after + kept * (tracked.after - tracked.before)
    measured = (tracked.after - kept * tracked.before) / BATCH_NORM_MOMENTUM
    own = 1 - 1 / np.maximum(tracked.counts, 1)
    share = np.full_like(own, 1 - 1 / max(tracked.counts.sum(), 1)) if tracked.together else own
    biased = _moved_by(tracked, (measured.T * share).T)
    by_own = _moved_by(tracked, (measured.T * (share / np.where(own, own, share))).T)
    times = 1 - 1 / np.maximum(tracked.counts * len(tracked.counts), 2)
    by_times = _moved_by(tracked, (measured.T * (share / times)).T)
    swapped = BATCH_NORM_MOMENTUM * tracked.before + kept * measured
    known = (
        (causes.STATISTICS_TWICE(), twice),
        (still, tracked.before),
        (causes.STATISTICS_MEAN(), np.broadcast_to(tracked.after.mean(axis=0), tracked.after.shape)),
        (causes.VARIANCE_BIASED(), biased),
        (causes.VARIANCE_BY_OWN(), by_own),
        (causes.VARIANCE_BY_TIMES(), by_times),
        (causes.MOMENTUM_SWAPPED(), swapped),
    )
    moved = tracked.after[rank] - kept * tracked.before[rank]
    others = tuple(
        (causes.STATISTICS_FROM_RANK(rank=other), moved + kept * before)
        for other, before in enumerate(tracked.before)
        if other != rank
    )
    mean = causes.STATISTICS_FROM_MEAN(), moved + kept * tracked.before.mean(axis=0)
    alternatives = (
        *((cause, array[rank]) for cause, array in known),
        *others,
        mean,
    )
    left = (causes.STATISTICS_PUT_TOGETHER(),) * tracked.together
    return Evidence(len(expected), alternatives=alternatives, precision=False, otherwise=left)


def _moved_by(tracked: Tracked, measured: Array) -> Array:
    return (1 - BATCH_NORM_MOMENTUM) * tracked.before + BATCH_NORM_MOMENTUM * measured
