"""The cost model fitted to known times, and its errors on held-out points."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from ddpcheck_benchmarks.projection.fitting import bootstrap, fit, held_out_errors, log_error, look_alikes
from ddpcheck_benchmarks.projection.formulas import (
    FORMULAS,
)
from ddpcheck_benchmarks.projection.measurements import Measurement, Point, Series
from ddpcheck_benchmarks.projection.nonnegative import nonnegative_least_squares
from ddpcheck_benchmarks.projection.validation import LARGER_SIZES, LARGER_WORLDS, SMALLEST_WORLD, relevant, validate

SIZES = tuple(4**i for i in range(3, 12))
WORLDS = (2, 3, 4, 6, 8)
CORES = 4  # with 2, a tree and a root that gathers are the same work; with 8, a root and direct exchange


def truth(name: str, point: tuple[int, int], coefficients: tuple[float, float, float]) -> float:
    overhead, alpha, beta = coefficients
    cost = FORMULAS["all_reduce"][name](point[0], point[1])
    k = cost.contention(CORES)
    return overhead + k * (cost.steps * alpha + cost.moved * beta)


def synthetic(
    time: Callable[[tuple[int, int]], float], noise: float = 0.03, launches: int = 12, seed: int = 1
) -> Series:
    """Times with noise of launches, shared by all sizes of a world size, and noise of each time; a fifth have a
    spike.
    """
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


def test_two_ranks_distinguish_few_algorithms() -> None:
    points = [point for point in synthetic(lambda point: truth("ring", point, TRUE)).points() if point.world_size == 2]
    errors = held_out_errors("all_reduce", points)
    assert len(look_alikes(errors)) == len(errors)
    assert next(iter(errors)) == "ring"
    # costs that cannot be separated from messages count as messages, not as a constant
    assert fit("all_reduce", points).segments[0].overhead == 0


@pytest.mark.parametrize("seed", range(20))
def test_nonnegative_least_squares_is_the_best_of_all_subsets(seed: int) -> None:
    random = np.random.default_rng(seed)
    # similar columns, some of which would have a negative coefficient
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


def test_nonnegative_least_squares_drops_columns_that_helped_first() -> None:
    """The first column is the best alone, and useless beside the two others."""
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
    # a low quartile is below the true time, by about 0.67 of the noise
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
    # from one world size, the cost of a call cannot be separated from the cost of messages
    assert all(median < 0.1 for name, (median, _) in found.items() if name != SMALLEST_WORLD), found


@pytest.mark.parametrize(
    ("scenario", "broken"),
    [
        (LARGER_WORLDS, lambda point: point[0] > 4),
        (LARGER_SIZES, lambda point: point[1] > 4**9),
    ],
)
def test_a_model_that_breaks_beyond_its_data_shows(scenario: str, broken: Callable[[tuple[int, int]], bool]) -> None:
    """Times are three times as long in the held-out points of the scenario, so predictions are two thirds too low."""
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
    """For noise alone, a fit to all points has a smaller error than a fit without them."""
    random = np.random.default_rng(3)
    points = [Point(p, size, CORES, float(np.exp(random.normal(0, 1)))) for p in (2, 4) for size in SIZES[:4]]
    model = fit("all_reduce", points, "ring")
    inside = [abs(log_error(model, point)) for point in points]
    assert held_out_errors("all_reduce", points)["ring"] > 1.02 * np.mean(inside)
