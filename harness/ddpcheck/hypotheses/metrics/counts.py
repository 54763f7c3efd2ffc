"""Hypotheses about a mean of metrics with wrong counts: cut to few bits, averaged, or another number."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...causes import Cause
from ...causes import metrics as causes
from ...job import Aggregate
from .evidence import WrongMean

HALF = 65504.0
"""The largest number in half precision."""


def count_wraps(of: WrongMean) -> Iterator[Cause]:
    """Counts, or their sum, are kept in 8 or 16 bits."""
    if (bits := _wrapping(of.made, of.got)) is not None:
        yield causes.COUNT_WRAPS(count=max(sum(of.made.counts), *of.made.counts), bits=bits)


def counts_averaged_as_integers(of: WrongMean) -> Iterator[Cause]:
    counted = sum(of.made.counts)
    if counted % of.world:
        floored = counted // of.world
        whole = of.total / of.world / floored if floored else math.nan
        if of.number == whole or (math.isnan(whole) and not math.isfinite(of.number)):
            yield causes.COUNTS_AVERAGED_AS_INTEGERS()


def count_overflows(of: WrongMean) -> Iterator[Cause]:
    if max(of.made.counts) >= 1 << 31:
        yield causes.COUNT_OVERFLOWS()


def divided_by_other_count(of: WrongMean) -> Iterator[Cause]:
    """The sum over all samples is divided by another count, or the counts are used in only one of the two sums."""
    world, counts, total, every = of.world, of.made.counts, of.total, sum(of.made.counts)
    wrong = {
        causes.WEIGHTED_SUM_BY_RANKS(): total / world,
        causes.UNWEIGHTED_SUM_BY_SAMPLES(): math.fsum(of.present) / every,
        causes.MEAN_TIMES_WORLD_SIZE(world_size=world): total * world / every,
        causes.METRIC_DIVIDED_TWICE(world_size=world): total / every / world,
        causes.DIVIDED_BY_LARGEST_COUNT(): total / max(counts),
        causes.DIVIDED_BY_OWN_COUNT(): total / (counts[of.rank] or math.nan),
        causes.SUM_AND_COUNT_SWAPPED(): every / (total or math.nan),
    }
    yield from (cause for cause, value in wrong.items() if world > 1 and math.isclose(of.number, value, rel_tol=1e-6))


def half_precision_overflows(of: WrongMean) -> Iterator[Cause]:
    """A count, or a sum, exceeds half precision."""
    if math.isfinite(of.number) and of.number:
        return
    most = max(sum(of.made.counts), *(abs(value * count) for value, count in of.pairs if count))
    if HALF < most < 1 << 31:
        yield causes.HALF_PRECISION_OVERFLOWS(largest=float(most))


def _wrapping(made: Aggregate, got: float | None) -> int | None:
    """The number of bits of counts, or of their sum, for which overflow gives this mean; None if there is none."""
    pairs = list(zip(made.values, made.counts, strict=True))
    whole = math.fsum(value * count for value, count in pairs if count)
    for bits in (16, 8) if sum(made.counts) < 1 << 31 else ():
        kept = [_cut(count, bits) for count in made.counts]
        cut = math.fsum(value * count for (value, _), count in zip(pairs, kept, strict=True) if count)
        for total, count in ((whole, _cut(sum(made.counts), bits)), (cut, _cut(sum(kept), bits)), (whole, sum(kept))):
            if count == sum(made.counts):
                continue
            if got is None or not math.isfinite(got):  # missing, or divided by zero
                if count == 0 or (got is None and count < 0):
                    return bits
            elif count and math.isclose(got, total / count, rel_tol=1e-6):
                return bits
    return None


def _cut(count: int, bits: int) -> int:
    """A count as a signed integer of this many bits."""
    return (count + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
