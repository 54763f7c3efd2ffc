"""Causes of a wrong result of one of many equal calls."""

from __future__ import annotations

from ...causes import Cause, values
from ...causes import collectives as causes
from ...seeded_values import Array


def why_result_of_call_differs(got: Array, want: Array, own: Array, wrong: Array) -> Cause:
    if (got[wrong] == want[0]).all() and len(wrong) > 1:
        return causes.FIRST_RESULT_AGAIN()
    lags = [1, *(1 << bits for bits in range(1, 17)), 10, 100, 1000, 10_000, 255, 65_535]
    for lag in lags:
        if wrong[0] >= lag and (got[wrong] == want[wrong - lag]).all():
            return causes.EARLIER_RESULT(calls=lag)
    if got.shape[1] == 2 and (got[wrong] == own[wrong, None]).all():
        return values.NOT_REDUCED()
    return causes.OTHER_RESULT() if got[wrong].any() else values.ZERO()
