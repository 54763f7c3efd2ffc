"""Hypotheses about numbers that were returned before, by the same call, an earlier one, or another rank's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...causes import Cause
from ...causes import randomness as causes
from ...seeded_values import Array


@dataclass(frozen=True)
class RepeatedSingly:
    """Numbers, drawn one by one, of which a rank or several share more than `by_chance`. at_once, common: own and common
    numbers of one call, by rank.
    """

    at_once: Sequence[Array]
    common: Sequence[Array]
    by_chance: int


def common_is_one_ranks(of: RepeatedSingly) -> Cause | None:
    """In one call, too, some rank's own numbers are the common ones."""
    same = any(np.isin(own, common).sum() > of.by_chance for own, common in zip(of.at_once, of.common, strict=True))
    return causes.COMMON_IS_ONE_RANKS() if same else None


def single_from_shared(of: RepeatedSingly) -> Cause | None:
    """In one call, each rank draws its own numbers."""
    own = len(np.unique(np.concatenate(of.at_once))) > sum(map(len, of.at_once)) - of.by_chance
    return causes.SINGLE_FROM_SHARED() if own else None


def rank_not_in_seed(of: RepeatedSingly) -> Cause:
    return causes.RANK_NOT_IN_SEED()


def call_restarts(numbers: Array) -> Cause | None:
    """numbers: of two calls, half by each."""
    first, second = np.split(numbers, 2)
    return causes.CALL_RESTARTS() if np.array_equal(first, second) else None


def block_repeated(numbers: Array) -> Cause | None:
    same = np.flatnonzero(numbers[1:] == numbers[0]) + 1
    for period in same[:1].tolist():
        if np.array_equal(numbers[:period], numbers[period : 2 * period]):
            return causes.BLOCK_REPEATED(count=period)
    return None


def few_numbers(numbers: Array) -> Cause:
    return causes.FEW_NUMBERS(count=len(np.unique(numbers)))
