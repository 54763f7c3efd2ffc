"""Hypotheses about numbers that differ from those of the same seed and epoch, on another rank or in another object."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...causes import Cause
from ...causes import randomness as causes
from ...seeded_values import Array


@dataclass(frozen=True)
class OtherNumbers:
    """Numbers of this seed that differ from earlier ones of the same stream, where those of `first_seed` are right."""

    got: Array
    should: Array
    seed: int
    first_seed: int


@dataclass(frozen=True)
class OtherCommonNumbers:
    """A rank's common numbers, drawn one by one, that differ from rank 0's.

    numbers, first: the rank's and rank 0's; at_once, first_at_once: the same, drawn in one call.
    """

    rank: int
    numbers: Array
    first: Array
    at_once: Array
    first_at_once: Array


def drawn_ahead(of: OtherNumbers) -> Cause | None:
    """All numbers are right, after some additional ones."""
    got, should = of.got, of.should
    ahead = int(np.flatnonzero(got == should[0])[0]) if should[0] in got else 0
    right = ahead and np.array_equal(got[ahead:], should[: len(got) - ahead])
    return causes.DRAWN_AHEAD(count=ahead) if right else None


def this_seed_ignored(of: OtherNumbers) -> Cause | None:
    """This seed fails, and the first passed."""
    if of.seed == of.first_seed:
        return None
    return causes.LARGE_SEED_IGNORED(seed=of.seed) if of.seed else causes.SEED_0_IS_NONE()


def common_rounded(of: OtherNumbers) -> Cause | None:
    near = len(of.got) == len(of.should) and np.allclose(of.got, of.should, rtol=0, atol=1e-3)
    return causes.COMMON_ROUNDED() if near else None


def common_disturbed(of: OtherNumbers) -> tuple[Cause, ...]:
    """Other draws of a rank change the common stream."""
    ignored = this_seed_ignored(of)
    return (*([ignored] if ignored else []), causes.COMMON_FROM_OWN(), causes.GENERATOR_USED_BY_OTHERS())


def single_common_from_own(of: OtherCommonNumbers) -> Cause | None:
    return causes.SINGLE_FROM_OWN() if np.array_equal(of.at_once, of.first_at_once) else None


def common_taken_by_rank(of: OtherCommonNumbers) -> Cause | None:
    """One of the two ranks is some numbers ahead."""
    first, numbers = of.first, of.numbers
    for more in range(1, len(first) // 2):
        for one, other, ahead in ((first, numbers, 0), (numbers, first, of.rank)):
            if np.array_equal(one[:-more], other[more:]):
                return causes.COMMON_TAKEN_BY_RANK(rank=ahead, count=more)
    return None


def rank_in_common_seed(of: OtherCommonNumbers) -> Cause:
    return causes.RANK_IN_COMMON_SEED()
