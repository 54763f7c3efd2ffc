"""Random streams: results are validated, generators are disturbed, and the reference's streams are independent."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ddpcheck import Facets, Job
from ddpcheck.execution import ContractViolation, Execution
from ddpcheck.execution.randomness import disturb_generators
from ddpcheck.job import Disturb, Draw, Sample
from ddpcheck_implementations.data_parallel import RandomStreams


class Given:
    """Streams that return given values."""

    def __init__(self, made: Callable[[int], Any]) -> None:
        self.local = self.common = made

    def set_epoch(self, epoch: int) -> None: ...


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda count: [0.5] * count, "must return 2 floats in an array of one dimension, got list"),
        (lambda count: np.zeros((count, 1)), r"got float64\[2, 1\]"),
        (lambda count: np.zeros(count, int), r"got int64\[2\]"),
        (lambda count: np.full(count, 1.0), r"numbers in \[0, 1\), got .*1\.0"),
        (lambda count: np.full(count, np.nan), r"numbers in \[0, 1\), got .*nan"),
    ],
)
def test_invalid_random_numbers_break_the_contract(made: Callable[[int], Any], words: str) -> None:
    facets = Facets(rank=0, world_size=1, make_streams=lambda seed: Given(made))
    with pytest.raises(ContractViolation, match=words):
        Execution(facets, Job(1, (Draw(count=4),)), 0, lambda position: None).run()


def test_one_rank_draws_and_the_next_is_seeded() -> None:
    kept = random.getstate(), np.random.get_state()
    try:
        random.seed(5)
        np.random.seed(5)
        first = random.getstate(), np.random.get_state()[2]
        disturb_generators(0, 2, 3)
        assert (random.getstate(), np.random.get_state()[2]) == first
        disturb_generators(2, 2, 3)
        assert random.getstate() != first[0]
        assert np.random.get_state()[2] != first[1]
        disturb_generators(1, 2, 3)
        drawn = random.random(), np.random.random_sample()
        disturb_generators(1, 2, 3)
        assert (random.random(), np.random.random_sample()) == drawn
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])


def test_what_does_not_fit_the_world_is_refused() -> None:
    with pytest.raises(ValueError, match="extra draws for 1 ranks, not 2") as refused:
        Job(2, (Draw(extra=(1,)), Sample(4, peeks=(1, 1, 1)), Sample(4, disturbed=2), Disturb(2)))
    for words in ("peeks for 3 ranks", "operation 2 (sample): rank 2", "operation 3 (disturb): rank 2"):
        assert words in str(refused.value)


def test_streams_of_the_reference_go_on_and_begin_again() -> None:
    one, other = RandomStreams(0, 7), RandomStreams(1, 7)
    first, more = one.local(3), one.local(3)
    assert not np.intersect1d(first, more).size
    assert not np.intersect1d(first, other.local(6)).size
    assert np.array_equal(one.common(2), other.common(2))
    one.set_epoch(0)
    assert np.array_equal(one.local(3), first)
    one.set_epoch(1)
    assert not np.intersect1d(one.local(3), first).size
