"""Hypotheses about a wrong result of one of many equal calls."""

from __future__ import annotations

from dataclasses import dataclass

from ...causes import Cause, values
from ...causes import collectives as causes
from ...seeded_values import Array


@dataclass(frozen=True)
class WrongCalls:
    """Results of equal calls, one a row, of which some are wrong.

    got, want: of all calls. own: the number that this rank puts into each. wrong: the rows that are wrong; at least one.
    """

    got: Array
    want: Array
    own: Array
    wrong: Array


def first_result_again(of: WrongCalls) -> Cause | None:
    again = (of.got[of.wrong] == of.want[0]).all() and len(of.wrong) > 1
    return causes.FIRST_RESULT_AGAIN() if again else None


def earlier_result(of: WrongCalls) -> Cause | None:
    for lag in (1, *(1 << bits for bits in range(1, 17)), 10, 100, 1000, 10_000, 255, 65_535):
        if of.wrong[0] >= lag and (of.got[of.wrong] == of.want[of.wrong - lag]).all():
            return causes.EARLIER_RESULT(calls=lag)
    return None


def own_array_returned(of: WrongCalls) -> Cause | None:
    own = of.got.shape[1] == 2 and (of.got[of.wrong] == of.own[of.wrong, None]).all()
    return values.NOT_REDUCED() if own else None


def zero_result(of: WrongCalls) -> Cause | None:
    return None if of.got[of.wrong].any() else values.ZERO()


def other_result(of: WrongCalls) -> Cause:
    return causes.OTHER_RESULT()


def call_counter_wraps(of: WrongCalls) -> Cause | None:
    """Several calls before the first wrong one were right."""
    first = int(of.wrong[0])
    return causes.CALL_COUNTER_WRAPS(calls=first) if first > 1 else None
