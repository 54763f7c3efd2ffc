"""The cost model: formulas against messages played one by one, fits against times that are known, steps against sums by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from ddpcheck_benchmarks.projection.fitting import bootstrap, fit, held_out_errors, log_error, look_alikes
from ddpcheck_benchmarks.projection.formulas import (
    FORMULAS,
    Link,
    crossover,
    hierarchical,
    lower_bound,
    recursive_doubling,
    ring_all_reduce,
)
from ddpcheck_benchmarks.projection.measurements import Measurement, Point, Series
from ddpcheck_benchmarks.projection.nonnegative import nonnegative_least_squares
from ddpcheck_benchmarks.projection.simulation.schedules import SCHEDULES, Schedule, Transfer
from ddpcheck_benchmarks.projection.steps import Bucket, Compute, equal_buckets, expected_lateness, step
from ddpcheck_benchmarks.projection.validation import LARGER_SIZES, LARGER_WORLDS, SMALLEST_WORLD, relevant, validate

LINK = Link(3e-6, 2e-9, 5e-10)
SIZES = tuple(4**i for i in range(3, 12))
WORLDS = (2, 3, 4, 6, 8)
CORES = 4  # with 2, a tree and a root that gathers are the same work; with 8, a root and direct exchange


# ------------------------------------------------------------------------------------------- formulas, message by message


def played(schedule: Schedule, size: float, link: Link) -> float:
    """The end of the last rank: a message starts when both have got to its round, and each waits for its own only."""
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
    """The first and the second part of an all-reduce: reducing, and giving out."""

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


def test_a_ring_overtakes_recursive_doubling_at_the_crossover() -> None:
    size = crossover(8, LINK)
    assert ring_all_reduce(8, size).seconds(LINK) == pytest.approx(recursive_doubling(8, size).seconds(LINK))
    assert ring_all_reduce(8, 2 * size).seconds(LINK) < recursive_doubling(8, 2 * size).seconds(LINK)
    assert crossover(2, LINK) == pytest.approx((2 - 1) * LINK.alpha / (0.5 * LINK.gamma))
    assert crossover(2, Link(3e-6, 2e-9)) == math.inf


def test_hierarchy_is_its_parts() -> None:
    assert hierarchical(8, 1, 1e6, LINK, LINK) == pytest.approx(ring_all_reduce(8, 1e6).seconds(LINK))
    assert hierarchical(1, 8, 1e6, LINK, LINK) == pytest.approx(ring_all_reduce(8, 1e6).seconds(LINK))
    # the ranks of a host share its link, so inside a host at no cost it is a ring of hosts with as many bytes
    inside = Link(0, 0)
    assert hierarchical(4, 8, 1e6, inside, Link(0, 1e-9)) == pytest.approx(1.5e6 * 1e-9)


# ------------------------------------------------------------------------------------------------------------------ fits


def truth(name: str, point: tuple[int, int], coefficients: tuple[float, float, float]) -> float:
    overhead, alpha, beta = coefficients
    cost = FORMULAS["all_reduce"][name](point[0], point[1])
    k = cost.contention(CORES)
    return overhead + k * (cost.steps * alpha + cost.moved * beta)


def synthetic(
    time: Callable[[tuple[int, int]], float], noise: float = 0.03, launches: int = 12, seed: int = 1
) -> Series:
    """Times with noise of launches, which all sizes of a world size share, and of each time; a fifth have a spike."""
    random = np.random.default_rng(seed)
    shared = {p: random.normal(0, noise, launches) for p in WORLDS}
    return Series(
        "made",
        "all_reduce",
        False,
        tuple(
            Measurement("made", "all_reduce", p, size, False, CORES, tuple(float(value) for value in seconds))
            for p, size in itertools.product(WORLDS, SIZES)
            for seconds in [
                time((p, size))
                * np.exp(shared[p] + random.normal(0, noise, launches))
                * np.where(random.random(launches) < 0.2, 3.0, 1.0)
            ]
        ),
    )


TRUE = (2e-5, 1.5e-5, 1.2e-9)


@pytest.mark.parametrize("name", FORMULAS["all_reduce"])
def test_fit_recovers_what_made_the_times(name: str) -> None:
    points = synthetic(lambda point: truth(name, point, TRUE)).points()
    model = fit("all_reduce", points)
    assert [segment.algorithm for segment in model.segments] == [name]
    segment = model.segments[0]
    assert segment.alpha == pytest.approx(TRUE[1], rel=0.15)
    assert segment.beta == pytest.approx(TRUE[2], rel=0.15)
    assert look_alikes(held_out_errors("all_reduce", points))[0] == name


def both(point: tuple[int, int]) -> float:
    return truth("direct" if point[1] <= 4**6 else "ring", point, TRUE)


def test_fit_finds_where_another_algorithm_begins() -> None:
    model = fit("all_reduce", synthetic(both).points())
    assert [segment.algorithm for segment in model.segments] == ["direct", "ring"]
    assert 4**6 <= model.segments[0].upto < 4**7


def test_fit_of_a_known_algorithm() -> None:
    points = synthetic(lambda point: truth("naive", point, TRUE)).points()
    assert fit("all_reduce", points, "tree").segments[0].algorithm == "tree"
    with pytest.raises(ValueError, match="unknown algorithm of all_reduce 'rnig'; did you mean ring"):
        fit("all_reduce", points, "rnig")
    with pytest.raises(ValueError, match="unknown collective 'all_reduse'; did you mean all_reduce"):
        fit("all_reduse", points)
    with pytest.raises(ValueError, match="no measured time"):
        fit("all_reduce", ())


def test_two_ranks_alone_tell_a_ring_from_little_else() -> None:
    points = [point for point in synthetic(lambda point: truth("ring", point, TRUE)).points() if point.world_size == 2]
    errors = held_out_errors("all_reduce", points)
    assert len(look_alikes(errors)) == len(errors)
    assert next(iter(errors)) == "ring"
    # what cannot be told from messages counts as messages, not as a constant
    assert fit("all_reduce", points).segments[0].overhead == 0


@pytest.mark.parametrize("seed", range(20))
def test_nonnegative_least_squares_is_the_best_of_all_subsets(seed: int) -> None:
    random = np.random.default_rng(seed)
    # columns much alike, of which some would help with a negative coefficient
    alike = random.random((12, 1)) + 0.3 * random.random((12, 4))
    matrix = alike * [1.0, 1e-9, 1e9, 1.0]
    target = alike @ random.normal(0.3, 1.0, 4) + 0.1 * random.normal(size=12)
    best = math.inf
    for chosen in itertools.product((False, True), repeat=4):
        columns = alike[:, list(chosen)]
        part = np.linalg.lstsq(columns, target, rcond=None)[0]
        if (part >= 0).all():
            best = min(best, float(np.linalg.norm(columns @ part - target)))
    found = nonnegative_least_squares(matrix, target)
    assert (found >= 0).all()
    assert np.linalg.norm(matrix @ found - target) == pytest.approx(best, rel=1e-9)


def test_nonnegative_least_squares_gives_up_what_helped_at_first() -> None:
    """The first column is the best alone, and worse than nothing beside the two others."""
    matrix = np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 0.2, 0.2]])
    target = np.array([1.0, 1.0, 0.5])
    found = nonnegative_least_squares(matrix, target)
    best = np.linalg.lstsq(matrix[:, 1:], target, rcond=None)[0]
    assert found == pytest.approx([0.0, *best])
    assert min(np.linalg.solve(matrix, target)) < 0


def test_nonnegative_least_squares_refuses_nan() -> None:
    with pytest.raises(ValueError, match="finite"):
        nonnegative_least_squares(np.array([[np.nan]]), np.ones(1))


def test_launches_are_drawn_together_for_all_sizes() -> None:
    measurements = tuple(
        Measurement("made", "all_reduce", 2, size, False, CORES, tuple(size * (1.0 + launch) for launch in range(9)))
        for size in (1, 10)
    )
    series = Series("made", "all_reduce", False, measurements)
    for seed in range(20):
        small, large = series.resampled(np.random.default_rng(seed))
        assert large.seconds == pytest.approx(10 * small.seconds)
    quartiles = [series.resampled(np.random.default_rng(seed))[0].seconds for seed in range(200)]
    assert len(set(quartiles)) > 1
    assert np.mean(quartiles) == pytest.approx(3, abs=0.5)  # of 1 to 9


def test_bootstrap_covers_the_truth_and_needs_launches() -> None:
    series = synthetic(lambda point: truth("ring", point, TRUE), noise=0.1)
    model = fit("all_reduce", series.points())
    alphas = [draw.segments[0].alpha for draw in bootstrap(model, series, 60)]
    low, high = np.quantile(alphas, (0.01, 0.99))
    # a low quartile is below what made the times, by about 0.67 of the noise
    assert low < TRUE[1] < high * 1.15
    assert high / low > 1.02
    assert bootstrap(model, synthetic(lambda point: truth("ring", point, TRUE), launches=1), 60) == ()


# ------------------------------------------------------------------------------------------------------ held-out errors


def errors_of(time: Callable[[tuple[int, int]], float]) -> Mapping[str, tuple[float, float]]:
    points = synthetic(time).points()
    return {each.name: (each.median, each.bias) for each in validate("all_reduce", points)}


def test_held_out_errors_are_small_where_the_model_holds() -> None:
    found = errors_of(lambda point: truth("ring", point, TRUE))
    assert len(found) == 4
    # from one world size, what a call takes cannot be told from what messages take
    assert all(median < 0.1 for name, (median, _) in found.items() if name != SMALLEST_WORLD), found


@pytest.mark.parametrize(
    ("scenario", "broken"),
    [
        (LARGER_WORLDS, lambda point: point[0] > 4),
        (LARGER_SIZES, lambda point: point[1] > 4**9),
    ],
)
def test_a_model_that_breaks_beyond_its_data_shows(scenario: str, broken: Callable[[tuple[int, int]], bool]) -> None:
    """Times three times as long where the scenario holds out: two thirds too low."""
    found = errors_of(lambda point: truth("ring", point, TRUE) * (3 if broken(point) else 1))
    median, bias = found[scenario]
    assert median == pytest.approx(2 / 3, abs=0.1)
    assert bias == pytest.approx(-2 / 3, abs=0.1)


def test_the_errors_beside_a_prediction_are_of_its_kind() -> None:
    scenarios = validate("all_reduce", synthetic(both).points())
    chosen = {each.name for each in relevant(scenarios, beyond_ranks=True, beyond_bytes=False)}
    assert LARGER_WORLDS in chosen
    assert LARGER_SIZES not in chosen
    assert [each.name for each in relevant(scenarios, beyond_ranks=False, beyond_bytes=True)] == [LARGER_SIZES]


def test_errors_are_of_points_the_model_has_not_seen() -> None:
    """Of noise alone, a fit to all points knows more than a fit without them."""
    random = np.random.default_rng(3)
    points = [Point(p, size, CORES, float(np.exp(random.normal(0, 1)))) for p in (2, 4) for size in SIZES[:4]]
    model = fit("all_reduce", points, "ring")
    inside = [abs(log_error(model, point)) for point in points]
    assert held_out_errors("all_reduce", points)["ring"] > 1.02 * np.mean(inside)


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
