"""What an aggregated metric is that is wrong: which mistake gives that number, likeliest first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ddpcheck.job import Aggregate

HALF = 65504.0
"""The largest number that half precision has."""
_DECIMALS = 10
"""Fewer than these are what people show."""


def causes(made: Aggregate, got: float | None, rank: int, before: Sequence[Aggregate]) -> Iterator[str]:
    """What would give this number if something specific had gone wrong, likeliest first."""
    world, values = len(made.values), made.values
    pairs = list(zip(values, made.counts, strict=True))
    present = [value for value, count in pairs if count]
    total = math.fsum(value * count for value, count in pairs if count)
    if got is None:
        yield "the metric's name is missing"
        return
    if before and got in (
        mean_of([*before, made]),
        math.fsum(map(mean_of, ([each] for each in (*before, made)))) / (len(before) + 1),
    ):
        yield "it is the mean of this call and those before it: sums are kept from call to call"
    if before and got == _summed_again([*before, made]):
        yield "sums over all ranks are kept in place of this rank's own, and summed up over the ranks again with the next call"
    if got in (mean_of([each]) for each in before):
        yield "it is the mean of an earlier call, which is told again"
    if 0 in made.counts and math.isnan(got):
        idle = [value for value, count in pairs if not count]
        what = next(
            (what for what, test in (("NaN", math.isnan), ("infinity", math.isinf)) if any(map(test, idle))), ""
        )
        if what:
            yield f"a rank without samples took part with its {what}: 0 times {what} is NaN"
        elif not made.counts[rank]:
            yield f"rank {rank}, which has no samples, gives NaN of its own: did it take part, as all ranks have to?"
    if math.isnan(got) and not made.counts[0] and all(map(math.isfinite, values)):
        yield "rank 0 has no samples, and makes NaN of the mean for all: whether there are any is for the sum of counts to say"
    told = [(value, count) for value, count in pairs if value and count]
    if (counted := sum(made.counts)) % world:
        floored = counted // world
        whole = total / world / floored if floored else math.nan
        if got == whole or (math.isnan(whole) and not math.isfinite(got)):
            yield "the ranks' counts are averaged as integers, which cuts the fraction off"
    if 0.0 in values and told and got == total / sum(count for _, count in told):
        yield "a mean of 0 is taken for none: its samples are left out"
    if max(made.counts) >= 1 << 31:
        yield "a count needs more than 32 bits: it overflows on the way"
    if got in (math.fsum(values) / world, math.fsum(present) / len(present)):
        yield "it is the mean of the ranks' means: counts are not used"
    if 0 in made.counts and got == math.fsum(present) / world:
        yield "it is the mean of the ranks' means, to which a rank without samples gives 0"
    if got == math.fsum(values):
        yield "it is the sum of the ranks' means"
    if got == total:
        yield "it is the sum over all samples: not divided by the total count"
    if got == values[rank]:
        yield "it is this rank's own mean: not aggregated"
    if 0 in made.counts and got == total / sum(max(count, 1) for count in made.counts):
        yield "a rank without samples is counted as one sample, with a mean of 0"
    if before and any(got == total / sum(each.counts) for each in before if any(each.counts)):
        yield "it is divided by the count of an earlier call, which is kept"
    exact = mean_of([made])
    if any(isinstance(value, int) for value in values) and got in (math.floor(exact), math.ceil(exact)):
        yield "its fraction is cut off: where it is given as an int, it is aggregated as one"
    yield from _of_counts(made, got, rank, total)
    if missing := _missing(pairs, got):
        yield f"it is the mean of the other ranks: the part of rank {missing} is missing"
    if got == 0.0 > exact:
        yield "a negative mean is cut off at 0"
    if len(present) > 2 and 1 in made.counts and got == mean_of([_without_single(made)]):
        yield "a rank that has one sample is left out"
    if any(got == round(exact, places) for places in range(_DECIMALS)):
        yield "the mean is rounded to so many decimals, or taken for 0: what is small, as a learning rate, is lost"
    if abs(exact) < HALF and got == float(np.float16(exact)):
        yield "the mean has no more digits than half precision"
    if abs(got - exact) <= 1e-3 * max(map(abs, present)):
        kept = "; or something of an earlier call is in it" if before else ""
        yield f"the mean is right but for rounding: it, or a count, is kept with fewer digits than float32 has{kept}"
    elif got in present and len(present) > 1:
        alone = next(place for place, pair in enumerate(pairs) if pair[0] == got and pair[1])
        yield f"it is rank {alone}'s own mean, as if the others had no samples: what they bring is lost, or overwritten"
    elif 0 < got < min(present):
        yield f"what is larger than {got:g} is cut off there"
    elif min(present) <= got <= max(present):
        yield "it is a mean, but with other weights than the counts: they are lost, or changed, on the way"


def _of_counts(made: Aggregate, got: float, rank: int, total: float) -> Iterator[str]:
    """The sum over all samples is divided by another count than theirs, or the counts take part in one of the two sums only."""
    world, counts = len(made.values), made.counts
    every = sum(counts)
    present = [value for value, count in zip(made.values, counts, strict=True) if count]
    wrong = {
        "the means are multiplied by their counts, but the sum is divided by the number of ranks": total / world,
        "the means are added up without their counts, and divided by the count of all samples": math.fsum(present)
        / every,
        f"exactly {world} x too large: the count is averaged over the ranks, and the sum is not": total * world / every,
        f"exactly {world} x too small: it is divided by the number of ranks once more": total / every / world,
        "it is divided by the largest count of a rank, and not by that of all samples": total / max(counts),
        "it is divided by this rank's own count, and not by that of all samples": total / (counts[rank] or math.nan),
        "the sum and the count have changed places": every / (total or math.nan),
    }
    yield from (cause for cause, value in wrong.items() if world > 1 and math.isclose(got, value, rel_tol=1e-6))
    if not math.isfinite(got) or not got:
        most = max(every, *(abs(value * count) for value, count in zip(made.values, counts, strict=True) if count))
        if HALF < most < 1 << 31:
            yield f"sums or counts of up to {most:g} are infinite in half precision, which ends at {HALF:g}"


def _summed_again(calls: Sequence[Aggregate]) -> float:
    """The mean of the last call if what a call has summed up over the ranks is what each rank begins the next one with."""
    total = count = 0.0
    for made in calls:
        pairs = [pair for pair in zip(made.values, made.counts, strict=True) if pair[1]]
        total = len(made.values) * total + math.fsum(value * number for value, number in pairs)
        count = len(made.values) * count + sum(number for _, number in pairs)
    return total / count if count else math.nan


def _missing(pairs: Sequence[tuple[float, int]], got: float) -> str:
    """The rank without which this is the mean, if it is so without one; empty else."""
    there = [rank for rank, (_, count) in enumerate(pairs) if count]
    for rank in (
        there if len(there) > 2 else ()
    ):  # of two the other's mean would be left, which may be had in other ways
        others = [pair for other, pair in enumerate(pairs) if other != rank and pair[1]]
        if got == math.fsum(value * count for value, count in others) / sum(count for _, count in others):
            return str(rank)
    return ""


def _without_single(made: Aggregate) -> Aggregate:
    """Without the ranks that have one sample, if some have more."""
    counts = tuple(count * (count != 1) for count in made.counts)
    return replace(made, counts=counts) if any(counts) else made


def mean_of(all_made: Sequence[Aggregate]) -> float:
    """The mean over the samples of all of these."""
    pairs = [pair for made in all_made for pair in zip(made.values, made.counts, strict=True) if pair[1]]
    return math.fsum(value * count for value, count in pairs) / sum(count for _, count in pairs)
