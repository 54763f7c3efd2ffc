"""The cost model: formulas match message-by-message schedules, and steps match sums by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from ddpcheck_benchmarks.projection.formulas import (
    FORMULAS,
    Link,
    hierarchical,
    lower_bound,
    ring_all_reduce,
)
from ddpcheck_benchmarks.projection.simulation.schedules import SCHEDULES, Schedule, Transfer
from ddpcheck_benchmarks.projection.steps import Bucket, Compute, equal_buckets, expected_lateness, step

LINK = Link(3e-6, 2e-9, 5e-10)


# ------------------------------------------------------------------------------------------- formulas, message by message


def played(schedule: Schedule, size: float, link: Link) -> float:
    """The end of the last rank. A message starts when both ranks have reached its round; each rank waits only for its
    own.
    """
    clocks = [0.0] * schedule.world_size
    for transfers in schedule.rounds:
        ends = {rank: clocks[rank] for each in transfers for rank in (each.source, each.dest)}
        reduced = dict.fromkeys(ends, 0.0)
        for each in transfers:
            moved = (each.stop - each.start) / schedule.chunks * size
            end = max(clocks[each.source], clocks[each.dest]) + link.alpha + moved * link.beta
            ends[each.source], ends[each.dest] = max(ends[each.source], end), max(ends[each.dest], end)
            reduced[each.dest] += moved * link.gamma if each.reduces else 0.0
        for rank, end in ends.items():
            clocks[rank] = end + reduced[rank]
    return max(clocks)


@pytest.mark.parametrize("p", [2, 3, 4, 5, 6, 7, 8, 12, 16, 17])
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_sum_up_over_all_ranks(name: str, p: int) -> None:
    schedule = SCHEDULES[name](p)
    start = np.random.default_rng(p).integers(-9, 9, (p, schedule.chunks))
    values = start.copy()
    for transfers in schedule.rounds:
        sent = [values[each.source, each.start : each.stop].copy() for each in transfers]
        for each, payload in zip(transfers, sent, strict=True):
            part = values[each.dest, each.start : each.stop]
            part[:] = part + payload if each.reduces else payload
    assert (values == start.sum(axis=0)).all()


@pytest.mark.parametrize("p", [2, 3, 4, 5, 6, 7, 8, 12, 16, 17])
@pytest.mark.parametrize("name", SCHEDULES)
def test_formulas_are_what_the_messages_take(name: str, p: int) -> None:
    for size in (0.0, 1e3, 1e7):
        cost = FORMULAS["all_reduce"][name](p, size)
        assert played(SCHEDULES[name](p), size, LINK) == pytest.approx(cost.seconds(LINK), rel=1e-9)


@pytest.mark.parametrize("p", [2, 4, 8, 16])
@pytest.mark.parametrize("name", SCHEDULES)
def test_busy_ranks_are_those_of_an_average_round(name: str, p: int) -> None:
    rounds = SCHEDULES[name](p).rounds
    busy = np.mean([len({rank for each in transfers for rank in (each.source, each.dest)}) for transfers in rounds])
    assert FORMULAS["all_reduce"][name](p, 1).busy == pytest.approx(busy)


def halves(name: str) -> tuple[Callable[[int], Schedule], Callable[[int], Schedule]]:
    """The first and the second part of an all-reduce: reduction and distribution."""

    def part(p: int, first: bool) -> Schedule:
        schedule = SCHEDULES[name](p)
        rounds = [transfers for transfers in schedule.rounds if transfers[0].reduces == first]
        return Schedule(p, schedule.chunks, tuple(rounds))

    return lambda p: part(p, True), lambda p: part(p, False)


def dissemination(p: int) -> Schedule:
    distances = [1 << i for i in range((p - 1).bit_length())]
    return Schedule(
        p, 1, tuple(tuple(Transfer(rank, (rank + d) % p, 0, 0, False) for rank in range(p)) for d in distances)
    )


@pytest.mark.parametrize(
    ("collective", "name", "schedule", "worlds"),
    [
        ("reduce_scatter", "ring", halves("ring")[0], (2, 3, 7, 8)),
        ("reduce_scatter", "halving", halves("Rabenseifner")[0], (2, 4, 8, 16)),
        ("all_gather", "ring", halves("ring")[1], (2, 3, 7, 8)),
        ("all_gather", "doubling", halves("Rabenseifner")[1], (2, 4, 8, 16)),
        ("broadcast", "tree", halves("tree")[1], (2, 3, 7, 8)),
        ("broadcast", "flat", halves("naive")[1], (2, 3, 7, 8)),
        ("barrier", "dissemination", dissemination, (2, 3, 7, 8)),
    ],
)
def test_formulas_of_other_collectives(
    collective: str, name: str, schedule: Callable[[int], Schedule], worlds: Sequence[int]
) -> None:
    for p, size in itertools.product(worlds, (0.0, 1e6)):
        cost = FORMULAS[collective][name](p, size)
        assert played(schedule(p), size, LINK) == pytest.approx(cost.seconds(LINK), rel=1e-9)


@pytest.mark.parametrize("name", FORMULAS["all_reduce"])
def test_nothing_beats_the_lower_bound(name: str) -> None:
    for p, size in itertools.product((2, 3, 5, 8, 64, 1000), (0.0, 1e3, 1e9)):
        assert FORMULAS["all_reduce"][name](p, size).seconds(LINK) >= lower_bound(p, size, LINK) * (1 - 1e-12)


def test_hierarchy_is_its_parts() -> None:
    assert hierarchical(8, 1, 1e6, LINK, LINK) == pytest.approx(ring_all_reduce(8, 1e6).seconds(LINK))
    assert hierarchical(1, 8, 1e6, LINK, LINK) == pytest.approx(ring_all_reduce(8, 1e6).seconds(LINK))
    # the ranks of a host share its link, so with no cost inside a host this is a ring of hosts with as many bytes
    inside = Link(0, 0)
    assert hierarchical(4, 8, 1e6, inside, Link(0, 1e-9)) == pytest.approx(1.5e6 * 1e-9)


# ----------------------------------------------------------------------------------------------------------------- steps

COMPUTE = Compute(1.0, 2.0, 0.5)
HALVES = (Bucket(10, 0.5), Bucket(10, 1.0))


@pytest.mark.parametrize(
    ("seconds", "total", "exposed", "hidden"),
    [
        (0.0, 3.5, 0.0, 1.0),
        (0.5, 4.0, 0.5, 0.5),  # the first is hidden, the last never is
        (2.0, 6.5, 3.0, 0.25),  # the second waits for the first until 4
    ],
)
def test_step_by_hand(seconds: float, total: float, exposed: float, hidden: float) -> None:
    found = step(COMPUTE, HALVES, lambda size: seconds * size / 10, 2)
    assert (found.total, found.exposed, found.hidden) == pytest.approx((total, exposed, hidden))


def test_step_where_compute_and_communication_slow_each_other_down() -> None:
    found = step(COMPUTE, HALVES, lambda _: 0.5, 2, slowed_communication=2.0, slowed_compute=1.5)
    assert found.total == pytest.approx(1 + 3 + 1 + 0.5)
    assert found.exposed == pytest.approx(2.0)


def test_buckets_hold_the_model() -> None:
    buckets = equal_buckets(100e6, 25 * 2**20)
    assert sum(bucket.bytes for bucket in buckets) == pytest.approx(100e6)
    assert buckets[0].bytes == 2**20
    assert buckets[-1].ready == pytest.approx(1.0)
    assert equal_buckets(1000, 25 * 2**20) == (Bucket(1000, 1.0),)


def test_lateness_is_the_mean_of_the_latest_over_all_draws() -> None:
    samples = (1.0, 1.0, 2.0, 7.0)
    exact = np.mean([max(draws) for draws in itertools.product(samples, repeat=3)]) - np.mean(samples)
    assert expected_lateness(samples, 3) == pytest.approx(exact)
    assert expected_lateness(samples, 1) == pytest.approx(0)
    assert expected_lateness((), 8) == 0
    assert step(Compute(1, 1, 0, samples), (), lambda _: 0.0, 3).total == pytest.approx(2 + exact)
