"""Which implementations a report tells apart, in words."""

from __future__ import annotations

from ddpcheck_reports.told_apart import told_apart


def test_neighbours_are_compared_in_the_order_of_their_medians() -> None:
    seconds = {
        "slow": [4.0, 4.1, 4.2, 4.3],
        "fast": [1.0, 1.1, 1.2, 1.3],
        "alike": [1.05, 1.15, 1.25, 1.5],
        "once": [9.0],
    }
    assert told_apart("Step of small", seconds) == (
        "Step of small: fast and alike are not told apart, p = 0.69; alike is 3.46 x as fast as slow, p = 0.029; "
        "slow and once need 4 launches each to be told apart (rank-sum tests over launches)."
    )


def test_one_implementation_is_compared_with_none() -> None:
    assert not told_apart("Step of small", {"alone": [1.0, 2.0, 3.0]})
