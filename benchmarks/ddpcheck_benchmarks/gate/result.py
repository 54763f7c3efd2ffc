"""The result of a Record. Replaying the Record gives the same result."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ddpcheck.seeded_values import Array

from .decision import BASE, HEAD, Decision, Look, burst_times, decide, differs, log_ratios, look, seconds_apart
from .gate_benchmarks import Benchmark
from .record import Record
from .traffic import Tally, tallies

OK, REGRESSION, UNUSABLE, WRONG = 0, 1, 2, 3
"""Exit statuses. UNUSABLE: nothing could be compared, or with strict, not all benchmarks were decided."""

_APART = 0.10


@dataclass(frozen=True)
class Times:
    """Seconds of one call or step, each the median over launches of burst_times; ratios of head to base, by several
    statistics of the iterations of a burst; values: ln(head / base) of each launch.
    """

    base: float
    head: float
    values: Array
    ratios: dict[str, float]

    @property
    def bimodal(self) -> bool:
        """Whether the quantile that decides and the median contradict each other."""
        return abs(self.ratios["median"] - self.ratio) > _APART

    @property
    def ratio(self) -> float:
        """The ratio of head to base by the quantile that decides."""
        return _ratio(self.values)


@dataclass(frozen=True)
class Row:
    """One benchmark. decision and times: None if it was not timed. wrong: elements of head, and of base. counts_only: its
    time was not asked for.
    """

    benchmark: Benchmark
    decision: Decision | None
    times: Times | None
    tallies: tuple[Tally, ...]
    wrong: tuple[int, int]
    counts_only: bool

    @property
    def undecided(self) -> bool:
        """Whether its time was asked for, and not decided."""
        return not self.counts_only and (self.decision is None or self.decision.verdict != "pass")

    @property
    def compared(self) -> bool:
        """Whether any benchmark was decided."""
        return self.decision is not None or any(tally.base for tally in self.tallies)

    @property
    def more(self) -> tuple[Tally, ...]:
        """The counts in which head sends more than base, or than it promises."""
        return tuple(tally for tally in self.tallies if tally.judged == "more" or tally.wasteful)


@dataclass(frozen=True)
class Result:
    """The verdict on all benchmarks. control: head against itself, by benchmark; noisy: the control found a
    difference.
    """

    rows: tuple[Row, ...]
    control: tuple[tuple[str, Look], ...]
    noisy: bool

    def status(self, *, strict: bool = False, more_accepted: bool = False) -> int:
        """The exit status. strict: an undecided benchmark is UNUSABLE. more_accepted: more traffic is no regression."""
        verdicts = [row.decision.verdict for row in self.rows if row.decision is not None]
        if any(row.wrong[HEAD] for row in self.rows):
            return WRONG
        if "fail" in verdicts or (not more_accepted and any(row.more for row in self.rows)):
            return REGRESSION
        undecided = strict and any(row.undecided for row in self.rows)
        return UNUSABLE if undecided or not any(row.compared for row in self.rows) else OK


def result_of(record: Record) -> Result:
    """Decide by the record."""
    control = []
    for name in record.raw["control"]:
        raw = record.launches("control", name)
        assert raw is not None
        control.append((name, look(log_ratios(raw), record.design)))
    noisy = differs([seen for _, seen in control], record.design)
    return Result(tuple(_row(record, benchmark, noisy=noisy) for benchmark in record.benchmarks), tuple(control), noisy)


def _row(record: Record, benchmark: Benchmark, *, noisy: bool) -> Row:
    seen = record.seen[benchmark.name]
    counted = tallies(seen, record.least.get(benchmark.name), promised=record.sends_least)
    wrong = seen.wrong[BASE], seen.wrong[HEAD]
    raw = record.launches("measurement", benchmark.name)
    if raw is None:
        return Row(benchmark, None, None, counted, wrong, record.counts_only)
    fresh = record.launches("confirmation", benchmark.name)
    values = log_ratios(raw)
    again = None if fresh is None else log_ratios(fresh)
    decision = decide(values, again, seconds_apart(raw), record.design, noisy=noisy)
    return Row(benchmark, decision, _times(raw, values, benchmark.calls), counted, wrong, record.counts_only)


def _times(raw: Array, values: Array, calls: int) -> Times:
    of_sides = np.median(burst_times(raw), axis=(0, 1)) / calls
    ratios = {name: _ratio(log_ratios(raw, quantile)) for name, quantile in (("median", 50), ("p95", 95))}
    means = np.log(raw.max(axis=-1).mean(axis=-1))
    ratios["mean"] = _ratio(np.median(means[..., HEAD] - means[..., BASE], axis=-1))
    return Times(float(of_sides[BASE]), float(of_sides[HEAD]), values, ratios)


def _ratio(values: Array) -> float:
    return math.exp(float(np.median(values)))
