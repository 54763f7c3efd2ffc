"""Hypotheses about a wrong mean of metrics, likeliest first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ...causes import Cause
from ...causes import metrics as causes
from ...job import Aggregate
from ...oracle.means import mean_of

HALF = 65504.0
"""The largest number that half precision has."""
_DECIMALS = 10
"""Numbers of decimals that people display are smaller than this."""


def mean_causes(made: Aggregate, got: float | None, rank: int, before: Sequence[Aggregate]) -> Iterator[Cause]:
    """Causes with the number that each would give, likeliest first."""
    world, values = len(made.values), made.values
    pairs = list(zip(values, made.counts, strict=True))
    present = [value for value, count in pairs if count]
    total = math.fsum(value * count for value, count in pairs if count)
    if (bits := _wrapping(made, got)) is not None:
        yield causes.COUNT_WRAPS(count=max(sum(made.counts), *made.counts), bits=bits)
    if got is None:
        yield causes.METRIC_MISSING()
        return
    if before and got in (
        mean_of([*before, made]),
        math.fsum(map(mean_of, ([each] for each in (*before, made)))) / (len(before) + 1),
    ):
        yield causes.CALLS_ACCUMULATED()
    if before and got == _summed_again([*before, made]):
        yield causes.SUMS_REDUCED_AGAIN()
    if got in (mean_of([each]) for each in before):
        yield causes.METRIC_OF_EARLIER_CALL()
    if 0 in made.counts and math.isnan(got):
        idle = [value for value, count in pairs if not count]
        what = next(
            (what for what, test in (("NaN", math.isnan), ("infinity", math.isinf)) if any(map(test, idle))), ""
        )
        if not made.counts[rank]:  # where ranks with samples are right
            yield causes.EMPTY_RANK_NOT_AGGREGATED(rank=rank)
        if what:
            yield causes.NONFINITE_OF_EMPTY_RANK(value=what)
    if math.isnan(got) and not made.counts[0] and all(map(math.isfinite, values)):
        yield causes.RANK_0_DECIDES_EMPTY()
    told = [(value, count) for value, count in pairs if value and count]
    if (counted := sum(made.counts)) % world:
        floored = counted // world
        whole = total / world / floored if floored else math.nan
        if got == whole or (math.isnan(whole) and not math.isfinite(got)):
            yield causes.COUNTS_AVERAGED_AS_INTEGERS()
    if 0.0 in values and told and got == total / sum(count for _, count in told):
        yield causes.ZERO_MEAN_IGNORED()
    if max(made.counts) >= 1 << 31:
        yield causes.COUNT_OVERFLOWS()
    if got in (math.fsum(values) / world, math.fsum(present) / len(present)):
        yield causes.MEAN_OF_RANK_MEANS()
    if 0 in made.counts and got == math.fsum(present) / world:
        yield causes.EMPTY_RANK_GIVES_ZERO()
    if got == math.fsum(values):
        yield causes.SUM_OF_RANK_MEANS()
    if got == total:
        yield causes.METRIC_NOT_DIVIDED()
    if got == values[rank]:
        yield causes.METRIC_NOT_AGGREGATED()
    if 0 in made.counts and got == total / sum(max(count, 1) for count in made.counts):
        yield causes.EMPTY_RANK_COUNTED()
    if before and any(got == total / sum(each.counts) for each in before if any(each.counts)):
        yield causes.DIVIDED_BY_EARLIER_COUNT()
    exact = mean_of([made])
    if any(isinstance(value, int) for value in values) and got in (math.floor(exact), math.ceil(exact)):
        yield causes.METRIC_TRUNCATED()
    yield from _of_counts(made, got, rank, total)
    if (missing := _missing(pairs, got)) is not None:
        yield causes.RANK_MISSING_FROM_METRIC(rank=missing)
    if got == 0.0 > exact:
        yield causes.NEGATIVE_MEAN_CUT()
    if len(present) > 2 and 1 in made.counts and got == mean_of([_without_single(made)]):
        yield causes.SINGLE_SAMPLE_LEFT_OUT()
    decimals = next((places for places in range(_DECIMALS) if got == round(exact, places)), None)
    if decimals is not None:
        yield causes.METRIC_ROUNDED(decimals=decimals)
    if abs(exact) < HALF and got == float(np.float16(exact)):
        yield causes.METRIC_IN_HALF_PRECISION()
    if abs(got - exact) <= 1e-3 * max(map(abs, present)):
        yield causes.METRIC_IMPRECISE()
        if before:
            yield causes.VALUE_OF_EARLIER_CALL_ADDED()
    elif got in present and len(present) > 1:
        alone = next(place for place, pair in enumerate(pairs) if pair[0] == got and pair[1])
        yield causes.ONE_RANK_WINS(rank=alone)
    elif 0 < got < min(present):
        yield causes.METRIC_CAPPED(limit=got)
    elif min(present) <= got <= max(present):
        yield causes.METRIC_WEIGHTS_CHANGED()


def _wrapping(made: Aggregate, got: float | None) -> int | None:
    """In how few bits counts, or their sum, are kept, if what is left of them gives this; None if in enough, or in 32."""
    pairs = list(zip(made.values, made.counts, strict=True))
    whole = math.fsum(value * count for value, count in pairs if count)
    for bits in (16, 8) if sum(made.counts) < 1 << 31 else ():
        kept = [_cut(count, bits) for count in made.counts]
        cut = math.fsum(value * count for (value, _), count in zip(pairs, kept, strict=True) if count)
        for total, count in ((whole, _cut(sum(made.counts), bits)), (cut, _cut(sum(kept), bits)), (whole, sum(kept))):
            if count == sum(made.counts):
                continue
            if got is None or not math.isfinite(got):  # left out, or divided by none
                if count == 0 or (got is None and count < 0):
                    return bits
            elif count and math.isclose(got, total / count, rel_tol=1e-6):
                return bits
    return None


def _cut(count: int, bits: int) -> int:
    """A count as a signed integer of so many bits."""
    return (count + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def _of_counts(made: Aggregate, got: float, rank: int, total: float) -> Iterator[Cause]:
    """The sum over all samples is divided by another count than theirs, or the counts take part in one of the two sums only."""
    world, counts = len(made.values), made.counts
    every = sum(counts)
    present = [value for value, count in zip(made.values, counts, strict=True) if count]
    wrong = {
        causes.WEIGHTED_SUM_BY_RANKS(): total / world,
        causes.UNWEIGHTED_SUM_BY_SAMPLES(): math.fsum(present) / every,
        causes.COUNT_AVERAGED(world_size=world): total * world / every,
        causes.METRIC_DIVIDED_TWICE(world_size=world): total / every / world,
        causes.DIVIDED_BY_LARGEST_COUNT(): total / max(counts),
        causes.DIVIDED_BY_OWN_COUNT(): total / (counts[rank] or math.nan),
        causes.SUM_AND_COUNT_SWAPPED(): every / (total or math.nan),
    }
    yield from (cause for cause, value in wrong.items() if world > 1 and math.isclose(got, value, rel_tol=1e-6))
    if not math.isfinite(got) or not got:
        most = max(every, *(abs(value * count) for value, count in zip(made.values, counts, strict=True) if count))
        if HALF < most < 1 << 31:
            yield causes.HALF_PRECISION_OVERFLOWS(largest=float(most))


def _summed_again(calls: Sequence[Aggregate]) -> float:
    """The mean of the last call if each rank begins a call with the previous call's sum over ranks."""
    total = count = 0.0
    for made in calls:
        pairs = [pair for pair in zip(made.values, made.counts, strict=True) if pair[1]]
        total = len(made.values) * total + math.fsum(value * number for value, number in pairs)
        count = len(made.values) * count + sum(number for _, number in pairs)
    return total / count if count else math.nan


def _missing(pairs: Sequence[tuple[float, int]], got: float) -> int | None:
    """The rank that is missing from this mean, if there is one."""
    there = [rank for rank, (_, count) in enumerate(pairs) if count]
    for rank in (
        there if len(there) > 2 else ()
    ):  # of two the other's mean would be left, which may be had in other ways
        others = [pair for other, pair in enumerate(pairs) if other != rank and pair[1]]
        if got == math.fsum(value * count for value, count in others) / sum(count for _, count in others):
            return rank
    return None


def _without_single(made: Aggregate) -> Aggregate:
    """Without the ranks that have one sample, if some have more."""
    counts = tuple(count * (count != 1) for count in made.counts)
    return replace(made, counts=counts) if any(counts) else made
