"""The gate's statistics: exact bounds, decisions, and error rates on values with a known truth."""

from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from gate_study import main, replayed
from gate_trials import NOT_MEASURED, Trial, clopper_pearson, share, trials_in

from ddpcheck_benchmarks.gate.decision import (
    BASE,
    HEAD,
    Design,
    burst_times,
    confirm,
    decide,
    differs,
    iterations_needed,
    log_ratios,
    look,
    looks,
    seconds_apart,
)
from ddpcheck_benchmarks.gate.signed_rank import lower_bound, pseudo_median, tail, upper_bound, walsh_averages

DESIGN = Design()


def statistics_of_all_signs(n: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The sum of ranks with a positive sign, for each of the 2^n ways to choose signs."""
    ranks = np.arange(1, n + 1)
    return np.array([int(ranks[list(signs)].sum()) for signs in itertools.product([False, True], repeat=n)])


@pytest.mark.parametrize("n", range(1, 11))
def test_the_distribution_is_that_of_all_signs(n: int) -> None:
    every = statistics_of_all_signs(n)
    counted = [(every <= k).mean() for k in range(n * (n + 1) // 2 + 1)]
    np.testing.assert_allclose(tail(n), counted, rtol=1e-12)


@pytest.mark.parametrize("alpha", [0.005, 0.05, 0.2])
@pytest.mark.parametrize("n", range(4, 11))
def test_a_bound_fails_as_often_as_it_may_and_no_oftener(n: int, alpha: float) -> None:
    """Over all signs of the same sizes, which are equally likely if the truth is 0."""
    sizes = np.random.default_rng(n).lognormal(size=n)
    failed = [lower_bound(sizes * signs, alpha) > 0 for signs in itertools.product([-1.0, 1.0], repeat=n)]
    reachable = [chance for chance in tail(n) if chance <= alpha * (1 + 1e-12)]
    assert np.mean(failed) == (max(reachable) if reachable else 0.0)


def test_bounds_are_each_others_mirror_and_enclose_the_estimate() -> None:
    values = np.random.default_rng(1).normal(size=12)
    assert upper_bound(values, 0.05) == -lower_bound(-values, 0.05)
    assert lower_bound(values, 0.005) < lower_bound(values, 0.05) < pseudo_median(values) < upper_bound(values, 0.05)
    assert lower_bound(values + 3, 0.05) == pytest.approx(lower_bound(values, 0.05) + 3)


def test_too_few_values_bound_nothing() -> None:
    assert lower_bound(np.ones(7), 0.005) == -math.inf  # the smallest probability of 7 signs is 1 in 128
    assert lower_bound(np.ones(8), 0.005) == 1.0


def test_walsh_averages_are_all_means_of_two() -> None:
    assert walsh_averages(np.array([0.0, 2.0, 8.0])).tolist() == [0, 1, 2, 4, 5, 8]


def durations(ratio: float, launches: int = 12, seed: int = 0) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Invented durations: (launches, pairs, sides, iterations, ranks), head slower by `ratio`."""
    made = 2e-3 * np.random.default_rng(seed).lognormal(0, 0.05, (launches, 10, 2, 6, 2))
    made[:, :, HEAD] *= ratio
    return made


@pytest.mark.parametrize(
    ("ratio", "outcome"), [(1.0, "pass"), (1.02, "pass"), (1.25, "fail"), (0.8, "pass"), (1.07, "fail")]
)
def test_decision_after_each_number_of_launches(ratio: float, outcome: str) -> None:
    assert look(log_ratios(durations(ratio)), DESIGN).outcome == outcome


def test_the_slowest_rank_counts_and_interruptions_do_not() -> None:
    raw = durations(1.0)
    raw[..., 0] *= 0.5  # rank 0 waits for rank 1
    raw[:, :, HEAD, :3] *= 50  # half of the iterations were interrupted, which changes the mean but not the quartile
    assert look(log_ratios(raw), DESIGN).outcome == "pass"
    raw[:, :, HEAD] *= [0.6, 1.2]  # the mean over ranks is unchanged
    assert look(log_ratios(raw), DESIGN).outcome == "fail"


@pytest.mark.parametrize(
    ("scatter", "seconds", "needed"), [(0.01, 2e-3, 6), (0.2, 2e-3, 72), (0.2, 10e-3, 25), (0.2, 1.0, 6)]
)
def test_a_burst_has_more_iterations_where_they_scatter(scatter: float, seconds: float, needed: int) -> None:
    times = seconds * np.random.default_rng(1).lognormal(0, scatter, 4000)
    assert iterations_needed(times, DESIGN) == pytest.approx(needed, abs=1)


@pytest.mark.parametrize(("iterations", "quantile"), [(6, 25), (72, 10)])
def test_a_burst_of_many_iterations_has_a_lower_quantile(iterations: int, quantile: int) -> None:
    raw = np.random.default_rng(3).lognormal(0, 0.3, (1, 2, 2, iterations, 1))
    assert burst_times(raw) == pytest.approx(np.percentile(raw[..., 0], quantile, axis=-1))


def test_one_launch_is_one_value() -> None:
    """A launch that was disturbed in all its bursts counts as one of twelve."""
    raw = durations(1.0)
    raw[3, :, HEAD] *= 10
    values = log_ratios(raw)
    assert values.shape == (12,)
    assert (np.abs(values[[0, 1, 2, *range(4, 12)]]) < 0.1).all()
    assert look(values, DESIGN).outcome == "pass"


def test_looks_end_where_one_decides() -> None:
    wide = np.random.default_rng(0).normal(0.08, 0.2, 48)
    assert [seen.launches for seen in looks(wide, DESIGN)] == [12, 24, 48]
    assert [seen.launches for seen in looks(np.full(48, 0.3), DESIGN)] == [12]
    assert looks(np.zeros(11), DESIGN) == ()


def verdict(first: float, again: float | None, difference: float = 1e-3, *, noisy: bool = False) -> str:
    fresh = None if again is None else np.full(16, again)
    return decide(np.full(12, first), fresh, difference, DESIGN, noisy=noisy).verdict


def test_a_failure_must_be_confirmed() -> None:
    assert verdict(0.2, 0.2) == "fail"
    assert verdict(0.2, 0.0) == "unconfirmed"
    assert verdict(0.2, None) == "unconfirmed"
    assert verdict(0.2, 0.2, noisy=True) == "advisory"
    assert verdict(0.2, 0.2, difference=1e-6) == "pass"  # below the resolution of clock and floor
    assert verdict(0.0, None) == "pass"
    wide = np.random.default_rng(0).normal(0.08, 0.2, 48)
    assert decide(wide, None, 1e-3, DESIGN).verdict == "inconclusive"


def test_a_confirmation_ends_at_the_first_look_that_confirms() -> None:
    late = np.concatenate([np.full(6, 0.0), np.full(14, 0.3)])
    assert confirm(np.full(20, 0.3), DESIGN).launches == DESIGN.confirmations[0] == 6
    assert [confirm(late[:count], DESIGN).launches for count in (6, 10, 11, 19, 20)] == [6, 6, 11, 11, 20]
    assert [confirm(late[:count], DESIGN).outcome == "fail" for count in (11, 20)] == [False, True]


def test_a_slow_down_of_the_margin_is_confirmed_no_oftener_than_the_design_says() -> None:
    rng = np.random.default_rng(2026)
    drawn = [launches_like_ours(rng, DESIGN.confirmations[-1], math.log1p(DESIGN.margin)) for _ in range(3000)]
    confirmed = sum(confirm(values, DESIGN).outcome == "fail" for values in drawn)
    # three standard errors of 3,000 draws are 1.2 %
    assert 0 < confirmed / len(drawn) <= len(DESIGN.confirmations) * DESIGN.alpha_confirm + 0.012


def test_faster_is_said_and_harmless() -> None:
    decision = decide(np.full(12, -0.2), None, -1e-3, DESIGN)
    assert (decision.verdict, decision.faster) == ("pass", True)
    assert not decide(np.random.default_rng(0).normal(0, 0.01, 12), None, 0.0, DESIGN).faster


def test_control_is_noisy_in_either_direction() -> None:
    assert not differs([look(np.random.default_rng(0).normal(0, 0.05, 12), DESIGN)], DESIGN)
    assert all(differs([look(np.full(12, shift), DESIGN)], DESIGN) for shift in (0.2, -0.2))


def test_seconds_apart_are_those_of_an_iteration() -> None:
    raw = np.empty((12, 10, 2, 6, 2))
    raw[:, :, BASE], raw[:, :, HEAD] = 0.002, 0.003
    assert seconds_apart(raw) == pytest.approx(0.001)


def launches_like_ours(
    rng: np.random.Generator, count: int, shift: float
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """ln(head / base) of launches on a shared machine: heavy tails, and one launch in eight disturbed on one side
    only.
    """
    values = shift + 0.05 * rng.standard_t(3, count)
    disturbed = rng.random(count) < 0.125
    return np.where(disturbed, values + rng.choice([-1, 1], count) * rng.exponential(0.5, count), values)


def share_of_failures(shift: float, draws: int, *, confirmed: bool) -> float:
    rng = np.random.default_rng(2026)
    failed = 0
    for _ in range(draws):
        seen = looks(launches_like_ours(rng, 48, shift), DESIGN)[-1]
        again = launches_like_ours(rng, DESIGN.confirmations[-1], shift)
        stays = not confirmed or confirm(again, DESIGN).outcome == "fail"
        failed += seen.outcome == "fail" and stays
    return failed / draws


def test_a_slow_down_of_the_margin_fails_no_oftener_than_the_design_says() -> None:
    """At most 1.5 % of first stages fail, at the largest slow-down that is no regression; three standard errors of
    3,000 draws are 0.7 %.
    """
    at_margin = share_of_failures(math.log1p(DESIGN.margin), 3000, confirmed=False)
    assert 0 < at_margin <= 0.015 + 0.007


def test_equal_code_hardly_ever_fails_and_slower_code_does() -> None:
    assert share_of_failures(0.0, 3000, confirmed=True) == 0.0
    assert share_of_failures(math.log(1.25), 200, confirmed=True) >= 0.95
    assert share_of_failures(math.log(1.10), 400, confirmed=True) >= 0.5


def test_a_design_survives_a_file() -> None:
    design = dataclasses.replace(DESIGN, looks=(9, 18), margin=0.05)
    assert Design.from_plain(design.to_plain()) == design


def test_resampled_gates_find_planted_regressions() -> None:
    recorded = launches_like_ours(np.random.default_rng(4), 100, 0.0)
    assert share(replayed("step", recorded, 0.0, 200, DESIGN, 1), "fail") == 0
    slower = replayed("step", recorded, 0.25, 200, DESIGN, 1)
    assert share(slower, "fail") >= 0.95
    assert min(trial.launches for trial in slower) >= DESIGN.looks[0] + DESIGN.confirmations[0]


@pytest.mark.parametrize(
    ("hits", "of", "interval"), [(0, 20, (0, 0.1684)), (5, 20, (0.0866, 0.4910)), (3, 3, (0.2924, 1))]
)
def test_intervals_of_shares_are_those_of_the_tables(hits: int, of: int, interval: tuple[float, float]) -> None:
    assert clopper_pearson(hits, of) == pytest.approx(interval, abs=1e-4)


def test_real_gates_are_kept_and_shown_on_a_page(tmp_path: Path) -> None:
    file, page = tmp_path / "live.jsonl", tmp_path / "gate.md"
    trials = [Trial("step", 0.25, seed, "fail", 28, 0.223, 61.0, 0.5, (0.2, 0.3)) for seed in range(3)]
    trials += [Trial("step", 0.0, 0, "pass", 12), Trial("step", 0.0, 1, NOT_MEASURED, reason="rank 1 did not start")]
    for trial in trials:
        trial.append_to(file)
    assert [trial.which for trial in trials_in(file)] == [trial.which for trial in trials]
    for _ in range(2):  # the second write replaces the first
        page.write_text(
            page.read_text() if page.exists() else "above\n<!-- live gates -->\n<!-- end of live gates -->\nbelow\n"
        )
        assert CliRunner().invoke(main, ["show", str(file), "--page", str(page)]).exit_code == 0
    told = page.read_text().splitlines()
    assert [line[:40] for line in told if line.startswith("| step")] == [
        "| step | +0% | 1 | 0.0% | 0.00% to 97.50",
        "| step | +25% | 3 | 100.0% | 29.24% to 1",
    ]
    assert "Not measured: 1, of which the last: rank 1 did not start" in told
    assert (told[0], told[-1]) == ("above", "below")


def test_gates_that_a_file_has_are_not_run_again(tmp_path: Path) -> None:
    file = tmp_path / "live.jsonl"
    for slower in (0.0, 0.1, 0.25):
        Trial("barrier", slower, 0, NOT_MEASURED).append_to(file)
        Trial("barrier", slower, 0, "pass", 12).append_to(file)
    done = CliRunner().invoke(main, ["live", str(file), "--equal", "1", "--slower", "1", "--benchmarks", "barrier"])
    assert (done.exit_code, done.output, len(trials_in(file))) == (0, "", 6)
