"""Hypotheses about two streams of random numbers that depend on each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...causes import Cause
from ...causes import randomness as causes
from ...seeded_values import Array

Source = tuple[int, int, int | None]
"""Seed, epoch, and the rank whose own stream it is, or None for the common one."""

_FAR = 100
"""Seeds or epochs so far apart may have equal last bits."""


@dataclass(frozen=True)
class AlikeStreams:
    """Two streams of `count` numbers each that have more numbers in common than `by_chance`.

    same: the number in common; x and 1 - x count as equal. in_place, mirrored: how many of them are at the same
    positions, as x and x, and as x and 1 - x.
    """

    first: Source
    second: Source
    count: int
    by_chance: int
    same: int
    in_place: int
    mirrored: int

    @cached_property
    def changed(self) -> dict[str, tuple[int, int]]:
        """The numbers of the two sources that differ."""
        (seed, epoch, rank), (other_seed, other_epoch, other_rank) = self.first, self.second
        numbers = {"rank": (rank or 0, other_rank or 0), "epoch": (epoch, other_epoch), "seed": (seed, other_seed)}
        return {part: both for part, both in numbers.items() if both[0] != both[1]}

    @property
    def part(self) -> str:
        """The first number of the sources that differs."""
        return next(iter(self.changed))

    @property
    def partly(self) -> bool:
        """Whether some numbers are in common, and not all."""
        return self.same < self.count - self.by_chance


def mirrored(of: AlikeStreams) -> Cause | None:
    return causes.MIRRORED() if of.mirrored > of.by_chance >= of.in_place else None


def common_is_one_ranks(of: AlikeStreams) -> Cause | None:
    return causes.COMMON_IS_ONE_RANKS() if (of.first[2] is None) != (of.second[2] is None) else None


def some_shared(of: AlikeStreams) -> Cause | None:
    """All numbers in common are at the same positions."""
    some = of.by_chance < of.in_place == of.same and of.partly
    return causes.SOME_SHARED(count=of.same, size=of.count) if some else None


def seed_is_sum(of: AlikeStreams) -> Cause | None:
    return causes.SEED_IS_SUM(parts=tuple(of.changed)) if len(of.changed) > 1 else None


def streams_overlap(of: AlikeStreams) -> Cause | None:
    return causes.STREAMS_OVERLAP(part=of.part) if of.partly else None


def seed_0_is_none(of: AlikeStreams) -> Cause | None:
    return causes.SEED_0_IS_NONE() if of.part == "seed" and 0 in of.changed["seed"] else None


def number_truncated(of: AlikeStreams) -> Cause | None:
    low, high = sorted(of.changed[of.part])
    far = of.part != "rank" and high - low >= _FAR
    return causes.TRUNCATED(part=of.part, first=low, second=high) if far else None


def number_ignored(of: AlikeStreams) -> Cause:
    kinds = {"rank": causes.RANK_NOT_IN_SEED, "epoch": causes.SET_EPOCH_IGNORED, "seed": causes.SEED_IGNORED}
    return kinds[of.part]()


def streams_scaled(streams: Sequence[Array]) -> Cause | None:
    """Both lie in a part of the interval: 2 count numbers leave out an eighth of it by chance with 1e-118."""
    numbers = np.concatenate(streams)
    counts, _ = np.histogram(numbers, bins=8, range=(0, 1))
    return None if counts.all() else causes.NUMBERS_SCALED(low=float(numbers.min()), high=float(numbers.max()))


def streams_in_order(streams: Sequence[Array]) -> Cause | None:
    """The first half of each, from one call, ascends."""
    ascending = all((np.diff(each[: len(each) // 2]) >= 0).all() for each in streams)
    return causes.IN_ORDER() if ascending else None


def streams_depend(streams: Sequence[Array]) -> Cause:
    return causes.STREAMS_DEPEND()
