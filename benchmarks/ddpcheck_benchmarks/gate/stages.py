"""The stages of one gate: a trial, launches up to the look that decides, fresh launches to confirm, and a control."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ddpcheck.contract.adapter import Adapter
from ddpcheck.counted_nouns import counted
from ddpcheck.seeded_values import Array

from .compared_revision import Side
from .decision import BASE, HEAD, confirm, differs, iterations_needed, log_ratios, look, looks, seconds_apart
from .gate_benchmarks import Benchmark
from .launches import Pairing, Seen, Toss
from .record import MeasuredSide, Record, Stage
from .summary import change, share

_TRIED = 3
_TRIED_AGAIN = 12
_SENTINELS = 2
_CONTROL_LOOKS = 2


@dataclass(frozen=True)
class Progress:
    """Progress reports of a gate, and its end. told: the current launch. looked: the state at a look. launched: the
    Record after each launch. ends_at: monotonic seconds after which no launch begins.
    """

    told: Callable[[str], None] = lambda text: None
    looked: Callable[[str], None] = lambda text: None
    launched: Callable[[Record], None] = lambda record: None
    ends_at: float = math.inf

    @property
    def ended(self) -> bool:
        return time.monotonic() >= self.ends_at

    def warn_of_too_little_time(self, record: Record, stage: Stage, needed: int) -> None:
        """Tell after the first launch of a stage if no time is left for all that a verdict needs."""
        left, seconds = self.ends_at - time.monotonic(), record.seconds[stage]
        if left < seconds * (needed - 1):
            self.looked(
                f"a launch takes {seconds:.0f} s, and a verdict needs {needed} launches: about "
                f"{counted(record.minutes_of(stage, needed), 'minute')}, but {left / 60:.1f} are left (--minutes)"
            )


def measure(
    record: Record,
    adapter: Adapter,
    sides: Sequence[Side],
    twin: Callable[[], Side],
    progress: Progress,
    *,
    timed: bool = True,
) -> None:
    """Fill the record. timed: also measure times, not only quantities without noise. twin: makes a second checkout of
    head.

    Unusable if a side cannot be measured.
    """
    begun, load = time.monotonic(), os.getloadavg()[0]
    pairing = Pairing(adapter, record.world_size, sides)
    progress.told("quantities without noise")
    try:
        _try(record, pairing)
        if timed and not any(seen.wrong[HEAD] for seen in record.seen.values()):
            suspects = _stage(record, pairing, record.benchmarks, progress)
            failed = _confirmed(record, pairing, suspects, progress)
            if failed:
                _control(record, adapter, sides[HEAD], twin, failed, progress)
    finally:  # what was measured until a signal is reported, too
        record.seconds["total"] = time.monotonic() - begun
        record.load = load, os.getloadavg()[0]


def _try(record: Record, pairing: Pairing) -> None:
    """Bursts of each benchmark on each side: counts, results, the calls for an iteration long enough, and the iterations
    that a burst needs.
    """
    toss = Toss.of(record.seed, "trial", 0)
    ready = []
    with pairing.launch(toss):
        for benchmark in record.benchmarks:
            seen = record.seen[benchmark.name] = Seen()
            calibrated = benchmark.calibrated(float(np.median(_tried(pairing, benchmark, _TRIED, seen))))
            needed = iterations_needed(_tried(pairing, calibrated, _TRIED_AGAIN, seen), record.design)
            ready.append(replace(calibrated, iterations=needed))
    record.benchmarks = tuple(ready)


def _tried(pairing: Pairing, benchmark: Benchmark, iterations: int, seen: Seen) -> Array:
    """Seconds of the slowest rank in each iteration of two bursts on each side."""
    return np.concatenate(
        [pairing.burst(side, benchmark, iterations, seen).max(axis=-1) for side in (BASE, HEAD, HEAD, BASE)]
    )


def _stage(record: Record, pairing: Pairing, benchmarks: Sequence[Benchmark], progress: Progress) -> list[Benchmark]:
    """Launch until each benchmark is decided, or the last look is over. Returns the benchmarks that failed."""

    def outcome(benchmark: Benchmark) -> str:
        made = looks(_values(record, "measurement", benchmark), record.design)
        return made[-1].outcome if made else "next"

    _launch_until(
        record, "measurement", pairing, benchmarks, record.design.looks, lambda each: outcome(each) != "next", progress
    )
    return [
        benchmark
        for benchmark in benchmarks
        if record.launches("measurement", benchmark.name) is not None
        and outcome(benchmark) == "fail"
        and _apart(record, benchmark) >= record.design.floor
    ]


def _confirmed(record: Record, pairing: Pairing, suspects: Sequence[Benchmark], progress: Progress) -> list[Benchmark]:
    """The suspects that fail again in fresh launches; each takes part until it fails or the launches end."""

    def fails(suspect: Benchmark) -> bool:
        return confirm(_values(record, "confirmation", suspect), record.design).outcome == "fail"

    _launch_until(record, "confirmation", pairing, suspects, record.design.confirmations, fails, progress)
    return [each for each in suspects if record.launches("confirmation", each.name) is not None and fails(each)]


def _control(
    record: Record,
    adapter: Adapter,
    head: Side,
    twin: Callable[[], Side],
    failed: Sequence[Benchmark],
    progress: Progress,
) -> None:
    """The control: head against a second checkout of itself, for the failed benchmarks, until both directions are
    decided.
    """
    others = [benchmark for benchmark in record.benchmarks if benchmark not in failed]
    pairing = Pairing(adapter, record.world_size, (head, twin()))
    _launch_until(
        record,
        "control",
        pairing,
        [*failed, *others][:_SENTINELS],
        record.design.looks[:_CONTROL_LOOKS],
        lambda sentinel: _clear(_values(record, "control", sentinel), record),
        progress,
    )


def _launch_until(
    record: Record,
    stage: Stage,
    pairing: Pairing,
    benchmarks: Sequence[Benchmark],
    ends: Sequence[int],
    decided: Callable[[Benchmark], bool],
    progress: Progress,
) -> None:
    """Launch up to the last of `ends`, or until the time is over. After each end, decided benchmarks take no further
    part.
    """
    open_ones = list(benchmarks)
    for launch in range(1, ends[-1] + 1):
        if not open_ones or progress.ended:
            return
        progress.told(f"{stage}, launch {launch} of at most {ends[-1]}: {_names(open_ones)}")
        _launch(record, stage, launch, pairing, open_ones)
        progress.launched(record)
        if launch == 1:
            progress.warn_of_too_little_time(record, stage, ends[0])
        if launch in ends:
            still = [benchmark for benchmark in open_ones if not decided(benchmark)]
            state = (_state(record, stage, one, done=one not in still) for one in open_ones)
            progress.looked(f"{stage}, after {launch} launches: {', '.join(state)}")
            open_ones = still


def _state(record: Record, stage: Stage, benchmark: Benchmark, *, done: bool) -> str:
    """The benchmark's change so far. The confirmation decides before its launches suffice for an interval."""
    seen = look(_values(record, stage, benchmark), record.design)
    return f"{benchmark.name} {share(seen.estimate)}, decided" if done else f"{benchmark.name} {change(seen)}"


def _clear(values: Array, record: Record) -> bool:
    """Whether the control is decided in both directions: different, or neither slower nor faster."""
    ways = [look(way, record.design) for way in (values, -values)]
    return differs(ways[:1], record.design) or all(way.outcome == "pass" for way in ways)


def _launch(record: Record, stage: Stage, launch: int, pairing: Pairing, benchmarks: Sequence[Benchmark]) -> None:
    design, toss = record.design, Toss.of(record.seed, stage, launch)
    # the control's second side is head, too: its counts are not compared
    seen = record.seen if stage != "control" else {benchmark.name: Seen() for benchmark in benchmarks}
    begun = time.monotonic()
    record.add(stage, pairing.measure(benchmarks, design.pairs, toss, seen))
    record.seconds[stage] = record.seconds.get(stage, 0.0) + time.monotonic() - begun


def _values(record: Record, stage: Stage, benchmark: Benchmark) -> Array:
    raw = record.launches(stage, benchmark.name)
    assert raw is not None
    return log_ratios(raw)


def _apart(record: Record, benchmark: Benchmark) -> float:
    raw = record.launches("measurement", benchmark.name)
    assert raw is not None
    return seconds_apart(raw)


def _names(benchmarks: Sequence[Benchmark]) -> str:
    return ", ".join(benchmark.name for benchmark in benchmarks)


def places_of(sides: Sequence[Side], saw: Sequence[dict[str, object]]) -> tuple[MeasuredSide, ...]:
    """The names of the sides in a record."""
    return tuple(MeasuredSide(side.name, side.revision, seen) for side, seen in zip(sides, saw, strict=True))
