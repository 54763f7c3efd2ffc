"""What checks say of values: where bounds judge, and where there is nothing to judge."""

from __future__ import annotations

import numpy as np
import pytest

from ddpcheck import expect
from ddpcheck.verdict import Finding


@pytest.mark.parametrize(("got", "expected", "bound"), [(np.nan, -np.inf, np.inf), (3.5, 3.4, np.nan), (1.0, 1.1, 0.2)])
def test_no_judgement_where_rounding_may_have_made_anything(got: float, expected: float, bound: float) -> None:
    expect.within(np.float32([got]), np.array([expected]), np.array([bound]), "parameter", 0)


@pytest.mark.parametrize(("got", "expected", "bound"), [(np.nan, 1.0, 0.5), (np.inf, 1.0, 0.5), (1.0, 1.1, 0.05)])
def test_beyond_the_bound_is_told_with_both_numbers(got: float, expected: float, bound: float) -> None:
    values = np.array([2.0, expected])
    with pytest.raises(Finding, match=r"parameter\[1\] on rank 2: got .*, but should be .*rounding allows"):
        expect.within(np.array([2.0, got]), values, np.array([bound, bound]), "parameter", 2)
