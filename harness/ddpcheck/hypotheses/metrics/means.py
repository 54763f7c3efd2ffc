"""Hypotheses about a wrong mean of metrics: of other ranks, other calls, or rounded."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ...causes import Cause
from ...causes import metrics as causes
from ...job import Aggregate
from ...oracle.means import mean_of
from .counts import HALF
from .evidence import WrongMean

_DECIMALS = 10
"""People display numbers with fewer decimals than this."""


def metric_missing(of: WrongMean) -> Iterator[Cause]:
    yield causes.METRIC_MISSING()


def of_earlier_calls(of: WrongMean) -> Iterator[Cause]:
    """Earlier calls are averaged in, or their result is returned again."""
    got, made, before = of.number, of.made, of.before
    if before and got in (
        mean_of([*before, made]),
        math.fsum(map(mean_of, ([each] for each in (*before, made)))) / (len(before) + 1),
    ):
        yield causes.CALLS_ACCUMULATED()
    if before and got == _summed_again([*before, made]):
        yield causes.SUMS_REDUCED_AGAIN()
    if got in (mean_of([each]) for each in before):
        yield causes.METRIC_OF_EARLIER_CALL()


def nan_of_ranks_without_samples(of: WrongMean) -> Iterator[Cause]:
    """A rank without samples gives NaN, or its result counts for all."""
    made = of.made
    if 0 in made.counts and math.isnan(of.number):
        idle = [value for value, count in of.pairs if not count]
        tests = (("NaN", math.isnan), ("infinity", math.isinf))
        what = next((what for what, test in tests if any(map(test, idle))), "")
        if not made.counts[of.rank]:  # ranks with samples are right
            yield causes.EMPTY_RANK_NOT_AGGREGATED(rank=of.rank)
        if what:
            yield causes.NONFINITE_OF_EMPTY_RANK(value=what)
    if math.isnan(of.number) and not made.counts[0] and all(map(math.isfinite, made.values)):
        yield causes.RANK_0_DECIDES_EMPTY()


def zero_ignored(of: WrongMean) -> Iterator[Cause]:
    told = [(value, count) for value, count in of.pairs if value and count]
    if 0.0 in of.made.values and told and of.got == of.total / sum(count for _, count in told):
        yield causes.ZERO_MEAN_IGNORED()


def not_weighted(of: WrongMean) -> Iterator[Cause]:
    """Ranks count equally, or values are summed."""
    got, values = of.got, of.made.values
    if got in (math.fsum(values) / of.world, math.fsum(of.present) / len(of.present)):
        yield causes.MEAN_OF_RANK_MEANS()
    if 0 in of.made.counts and got == math.fsum(of.present) / of.world:
        yield causes.EMPTY_RANK_GIVES_ZERO()
    if got == math.fsum(values):
        yield causes.SUM_OF_RANK_MEANS()
    if got == of.total:
        yield causes.METRIC_NOT_DIVIDED()
    if got == values[of.rank]:
        yield causes.METRIC_NOT_AGGREGATED()


def ranks_without_samples_counted(of: WrongMean) -> Iterator[Cause]:
    if 0 in of.made.counts and of.got == of.total / sum(max(count, 1) for count in of.made.counts):
        yield causes.EMPTY_RANK_COUNTED()


def divided_by_count_of_earlier_call(of: WrongMean) -> Iterator[Cause]:
    if any(of.got == of.total / sum(each.counts) for each in of.before if any(each.counts)):
        yield causes.DIVIDED_BY_EARLIER_COUNT()


def mean_truncated(of: WrongMean) -> Iterator[Cause]:
    integers = any(isinstance(value, int) for value in of.made.values)
    if integers and of.got in (math.floor(of.exact), math.ceil(of.exact)):
        yield causes.METRIC_TRUNCATED()


def equal_ranks_count_once(of: WrongMean) -> Iterator[Cause]:
    """Ranks with one value and one count, of which only one takes part."""
    held = [pair for pair in of.pairs if pair[1]]
    once = set(held)
    if len(once) < len(held) and all(math.isfinite(value) for value, _ in once):
        mean = math.fsum(value * count for value, count in once) / sum(count for _, count in once)
        if math.isclose(of.number, mean, rel_tol=1e-6):
            yield causes.EQUAL_RANKS_COUNT_ONCE()


def rank_missing(of: WrongMean) -> Iterator[Cause]:
    if (missing := _missing(of.pairs, of.number)) is not None:
        yield causes.RANK_MISSING_FROM_METRIC(rank=missing)


def negative_mean_cut(of: WrongMean) -> Iterator[Cause]:
    if of.number == 0.0 > of.exact:
        yield causes.NEGATIVE_MEAN_CUT()


def single_samples_left_out(of: WrongMean) -> Iterator[Cause]:
    if len(of.present) > 2 and 1 in of.made.counts and of.got == mean_of([_without_single(of.made)]):
        yield causes.SINGLE_SAMPLE_LEFT_OUT()


def mean_rounded(of: WrongMean) -> Iterator[Cause]:
    """Rounded to a number of decimals, or to half precision."""
    decimals = next((places for places in range(_DECIMALS) if of.got == round(of.exact, places)), None)
    if decimals is not None:
        yield causes.METRIC_ROUNDED(decimals=decimals)
    if abs(of.exact) < HALF and of.got == float(np.float16(of.exact)):
        yield causes.METRIC_IN_HALF_PRECISION()


def by_size(of: WrongMean) -> Iterator[Cause]:
    """Close to the right mean, one rank's value, below all values, or between them."""
    got, present = of.number, of.present
    if abs(got - of.exact) <= 1e-3 * max(map(abs, present)):
        yield causes.METRIC_IMPRECISE()
        if of.before:
            yield causes.VALUE_OF_EARLIER_CALL_ADDED()
    elif got in present and len(present) > 1:
        alone = next(place for place, pair in enumerate(of.pairs) if pair[0] == got and pair[1])
        yield causes.ONE_RANK_WINS(rank=alone)
    elif 0 < got < min(present):
        yield causes.METRIC_CAPPED(limit=got)
    elif min(present) <= got <= max(present):
        yield causes.METRIC_WEIGHTS_CHANGED()


def _summed_again(calls: Sequence[Aggregate]) -> float:
    """The mean of the last call if each rank starts a call with the previous call's sum over ranks."""
    total = count = 0.0
    for made in calls:
        pairs = [pair for pair in zip(made.values, made.counts, strict=True) if pair[1]]
        total = len(made.values) * total + math.fsum(value * number for value, number in pairs)
        count = len(made.values) * count + sum(number for _, number in pairs)
    return total / count if count else math.nan


def _missing(pairs: Sequence[tuple[float, int]], got: float) -> int | None:
    """The rank that is missing in this mean, or None."""
    there = [rank for rank, (_, count) in enumerate(pairs) if count]
    for rank in (
        there if len(there) > 2 else ()
    ):  # with two ranks only the other's mean remains, which has other causes, too
        others = [pair for other, pair in enumerate(pairs) if other != rank and pair[1]]
        if got == math.fsum(value * count for value, count in others) / sum(count for _, count in others):
            return rank
    return None


def _without_single(made: Aggregate) -> Aggregate:
    """The call without the ranks that have one sample, if some have more."""
    counts = tuple(count * (count != 1) for count in made.counts)
    return replace(made, counts=counts) if any(counts) else made
