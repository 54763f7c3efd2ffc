"""Causes of random numbers that are not those of their seed, epoch and rank."""

from __future__ import annotations

import numpy as np

from ..causes import Cause
from ..causes import randomness as causes
from ..seeded_values import Array

Source = tuple[int, int, int | None]
"""Seed, epoch, and the rank whose own stream it is, or None for the common one."""


def drawn_ahead(got: Array, should: Array) -> tuple[Cause, ...]:
    """A cause if all is right but for some numbers in front."""
    ahead = int(np.flatnonzero(got == should[0])[0]) if should[0] in got else 0
    if not ahead or not np.array_equal(got[ahead:], should[: len(got) - ahead]):
        return ()
    return (causes.DRAWN_AHEAD(count=ahead),)


def not_in_common(seed: int, first_seed: int, got: Array, should: Array) -> tuple[Cause, ...]:
    """The cause if common numbers of this seed are not those of rank 0."""
    if len(got) == len(should) and np.allclose(got, should, rtol=0, atol=1e-3):
        return (causes.COMMON_ROUNDED(),)
    return (*unlike_first_seed(seed, first_seed), causes.COMMON_FROM_OWN(), causes.GENERATOR_USED_BY_OTHERS())


def unlike_first_seed(seed: int, first_seed: int) -> tuple[Cause, ...]:
    """The likely cause if this seed fails and `first_seed` passed; none for that itself."""
    if seed == first_seed:
        return ()
    return (causes.LARGE_SEED_IGNORED(seed=seed) if seed else causes.SEED_0_IS_NONE(),)


def why_not_common(rank: int, numbers: Array, first: Array) -> Cause:
    """The cause if a rank's common numbers are never rank 0's, however they are drawn."""
    for more in range(1, len(first) // 2):
        for one, other, ahead in ((first, numbers, 0), (numbers, first, rank)):
            if np.array_equal(one[:-more], other[more:]):
                return causes.COMMON_TAKEN_BY_RANK(rank=ahead, count=more)
    return causes.RANK_IN_COMMON_SEED()


def why_again(numbers: Array) -> Cause:
    """The cause if many of these numbers were returned before; one call gave half of them."""
    same = np.flatnonzero(numbers[1:] == numbers[0]) + 1
    for period in same[:1].tolist():
        if np.array_equal(numbers[:period], numbers[period : 2 * period]):
            return causes.BLOCK_REPEATED(count=period)
    return causes.FEW_NUMBERS(count=len(np.unique(numbers)))


def why_they_follow(*streams: Array) -> Cause:
    """The cause of streams alike in place. 2 count numbers leave out an eighth of the interval by chance with 1e-118."""
    numbers = np.concatenate(streams)
    counts, _ = np.histogram(numbers, bins=8, range=(0, 1))
    if not counts.all():
        return causes.NUMBERS_SCALED(low=float(numbers.min()), high=float(numbers.max()))
    if all((np.diff(each[: len(each) // 2]) >= 0).all() for each in streams):  # a call gives half of the numbers
        return causes.IN_ORDER()
    return causes.STREAMS_DEPEND()


def why_alike(
    first: Source, second: Source, count: int, by_chance: int, same: int, in_place: int, mirrored: int
) -> Cause:
    """Why two streams of `count` numbers each have `same` in common, more than by chance.

    in_place, mirrored: how many of the same numbers stand at the same places, as x and x, and as x and 1 - x.
    """
    (seed, epoch, rank), (other_seed, other_epoch, other_rank) = first, second
    if mirrored > by_chance >= in_place:
        return causes.MIRRORED()
    if (rank is None) != (other_rank is None):
        return causes.COMMON_IS_ONE_RANKS()
    numbers = {"rank": (rank or 0, other_rank or 0), "epoch": (epoch, other_epoch), "seed": (seed, other_seed)}
    changed = tuple(name for name, (one, other) in numbers.items() if one != other)
    if by_chance < in_place == same < count - by_chance:
        return causes.SOME_SHARED(count=same, size=count)
    if len(changed) > 1:
        return causes.SEED_IS_SUM(parts=changed)
    part = next(iter(changed))
    if same < count - by_chance:
        return causes.STREAMS_OVERLAP(part=part)
    if part == "seed" and 0 in (seed, other_seed):
        return causes.SEED_0_IS_NONE()
    low, high = sorted(numbers[part])
    if part != "rank" and high - low >= 100:
        return causes.TRUNCATED(part=part, first=low, second=high)
    return {"rank": causes.RANK_NOT_IN_SEED, "epoch": causes.SET_EPOCH_IGNORED, "seed": causes.SEED_IGNORED}[part]()
