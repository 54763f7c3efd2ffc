"""From durations to a verdict. One launch gives one value, independent of the number of its iterations.

Measurements of one launch are correlated: another process on one core slows minutes of them, and more iterations add no
information. So the unit is the launch, a pair of fresh process groups, and its value the median over alternating pairs
of bursts of ln(head / base).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from ddpcheck.seeded_values import Array

from .signed_rank import lower_bound, pseudo_median, upper_bound

Verdict = Literal["pass", "fail", "inconclusive", "unconfirmed", "advisory"]
BASE, HEAD = 0, 1
_OF_FEW, _OF_MANY, _MANY = 25.0, 10.0, 20
"""The quantile of a burst of fewer, or of at least so many iterations."""
_SCATTER = 0.1
"""Iterations scatter if the quartiles of their times differ by more than this share."""
_MOST_ITERATIONS = 72
_LONGEST_BURST = 0.25
"""Seconds of a burst that more iterations than the fewest may take."""
_NORMAL_80 = 0.8416  # 80 % of a normal distribution lie below so many standard deviations
_NORMAL_995 = 2.5758


@dataclass(frozen=True)
class Design:
    """The amount of measurements, and the rule of the decision.

    looks: the numbers of launches after which to decide. pairs: of bursts in a launch. iterations: the fewest timed
    iterations in a burst. margin: a slow-down up to this is never a failure. ceiling: a pass must exclude a slow-down
    of this. alpha_fail: for each look. confirmations: the numbers of fresh launches after which a failure is tested again, at
    alpha_confirm each time. floor: a difference in seconds of one timed iteration below which nothing counts.
    """

    looks: tuple[int, ...] = (12, 24, 48)
    pairs: int = 10
    iterations: int = 6
    margin: float = 0.03
    ceiling: float = 0.10
    alpha_fail: float = 0.005
    alpha_pass: float = 0.05
    confirmations: tuple[int, ...] = (6, 11, 20)
    alpha_confirm: float = 1 / 60
    floor: float = max(20e-6, 10 * time.get_clock_info("monotonic").resolution)

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_plain(data: Any) -> Design:
        return Design(
            **(data | {name: tuple(np.atleast_1d(data[name]).tolist()) for name in ("looks", "confirmations")})
        )


@dataclass(frozen=True)
class Look:
    """An estimate of ln(head / base) from these launches, with one-sided bounds at alpha_fail and alpha_pass.

    low and high are at alpha_fail; below at alpha_pass, as an upper bound.
    """

    launches: int
    estimate: float
    low: float
    high: float
    below: float
    outcome: Literal["fail", "pass", "next"]

    @property
    def told_apart(self) -> bool:
        """Whether the interval from low to high excludes a change of zero."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Decision:
    """The outcome of one benchmark. faster: even the upper bound is below zero. detectable: the slow-down (0.08: 8 %)
    that this many launches of this spread would find in four of five cases.
    """

    verdict: Verdict
    looks: tuple[Look, ...]
    confirmation: Look | None
    ignored: bool
    detectable: float

    @property
    def last(self) -> Look:
        return self.looks[-1]

    @property
    def launches(self) -> int:
        """Those of the measurement and of the confirmation."""
        return self.last.launches + (self.confirmation.launches if self.confirmation else 0)

    @property
    def faster(self) -> bool:
        return self.verdict == "pass" and self.last.high < 0


def iterations_needed(times: Array, design: Design) -> int:
    """The timed iterations of a burst: the design's number, or as many as it can afford if they scatter, as those of torch.

    times: seconds of some iterations.
    """
    low, middle, high = np.percentile(times, (25, 50, 75))
    if high <= low * (1 + _SCATTER):
        return design.iterations
    return max(design.iterations, min(_MOST_ITERATIONS, int(_LONGEST_BURST / middle)))


def burst_times(raw: Array, quantile: float | None = None) -> Array:
    """Seconds of each burst: a quantile over iterations of the slowest rank's time, by default a low one.

    raw: (launches, pairs, sides, iterations, ranks). Returns (launches, pairs, sides). The lower quartile ignores
    interruptions of some iterations; unlike the minimum, it shows a slow-down of most iterations. Steps of torch have
    two speeds, and the quartile of many lies now at one and now at the other: the tenth percentile stays at the faster.
    """
    if quantile is None:
        quantile = _OF_MANY if raw.shape[-2] >= _MANY else _OF_FEW
    times: Array = np.percentile(raw.max(axis=-1), quantile, axis=-1)
    return times


def log_ratios(raw: Array, quantile: float | None = None) -> Array:
    """ln(head / base) of each launch: the median over its pairs. raw as in burst_times."""
    times = np.log(burst_times(raw, quantile))
    ratios: Array = np.median(times[..., HEAD] - times[..., BASE], axis=-1)
    return ratios


def look(values: Array, design: Design, alpha: float | None = None) -> Look:
    """Judge the values of all launches so far; alpha instead of the design's alpha_fail."""
    level = design.alpha_fail if alpha is None else alpha
    low, high = lower_bound(values, level), upper_bound(values, level)
    below = upper_bound(values, design.alpha_pass)
    outcome: Literal["fail", "pass", "next"] = "next"
    if low > math.log1p(design.margin):
        outcome = "fail"
    elif below < math.log1p(design.ceiling):
        outcome = "pass"
    return Look(len(values), pseudo_median(values), low, high, below, outcome)


def looks(values: Array, design: Design) -> tuple[Look, ...]:
    """The looks at the available values, up to the first that decides."""
    made: list[Look] = []
    for count in design.looks:
        if count > len(values):
            break
        made.append(look(values[:count], design))
        if made[-1].outcome != "next":
            break
    return tuple(made)


def confirm(values: Array, design: Design) -> Look:
    """Judge fresh launches after a failure: at the first look that confirms it, or the last that has enough values."""
    enough = [count for count in design.confirmations if count <= len(values)] or [len(values)]
    made = [look(values[:count], design, design.alpha_confirm) for count in enough]
    return next((seen for seen in made if seen.outcome == "fail"), made[-1])


def decide(values: Array, fresh: Array | None, difference: float, design: Design, *, noisy: bool = False) -> Decision:
    """The verdict on one benchmark.

    values and fresh: ln(head / base) of each launch, of the first stage and of the confirmation, if there was one.
    difference: seconds of head minus base, of one timed iteration. noisy: the control failed, so a failure is only
    advice.
    """
    made = looks(values, design) or (replace(look(values, design), outcome="next"),)  # the gate ended early
    confirmation = confirm(fresh, design) if fresh is not None and len(fresh) else None
    outcome = made[-1].outcome
    ignored = outcome == "fail" and difference < design.floor
    verdict: Verdict = "inconclusive"
    if outcome == "pass" or ignored:
        verdict = "pass"
    elif outcome == "fail":
        confirmed = confirmation is not None and confirmation.outcome == "fail"
        verdict = "unconfirmed" if not confirmed else "advisory" if noisy else "fail"
    return Decision(verdict, made, confirmation, ignored, detectable(values, design))


def differs(control: Sequence[Look], design: Design) -> bool:
    """Whether equal code differs, in either direction, by more than the margin."""
    margin = math.log1p(design.margin)
    return any(seen.low > margin or seen.high < -margin for seen in control)


def seconds_apart(raw: Array) -> float:
    """Seconds of head minus base: the median over all bursts of each side."""
    times = burst_times(raw)
    return float(np.median(times[..., HEAD]) - np.median(times[..., BASE]))


def detectable(values: Array, design: Design) -> float:
    """The slow-down that this many launches with this spread find in four of five cases, as a share."""
    spread = 1.4826 * float(np.median(np.abs(values - np.median(values))))
    # 1.02: the signed-rank test's loss against the t-test on normal values
    return design.margin + (_NORMAL_995 + _NORMAL_80) * 1.02 * spread / math.sqrt(len(values))
