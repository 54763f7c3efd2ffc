"""Collectives of one launch: small sizes are warmed up first, then each is measured, in a new random order."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ddpcheck.job import Job
from ddpcheck.session import Session

from .collective_cases import Case
from .iteration_count import Effort
from .pytest_benchmark_records import Point, Results
from .rank_times import queue_share, slowest, spread, stamps, why

_WARM = 16 << 20  # for larger messages the check of their results is the warm-up, to save half of their time
CallRepetitions = dict[str, tuple[int, int]]
"""Iterations, and calls in each, by the name of the case; decided in the first launch for all launches."""


def measure_collectives(
    session: Session,
    chosen: Sequence[Case],
    launch: int,
    effort: Effort,
    repetitions: CallRepetitions,
    results: Results,
    begin: Callable[[Case], bool],
    seed: int = 0,
) -> Iterator[tuple[Case, float]]:
    """Measure all cases once in this Session, and add them to the results; yields each with its seconds.

    begin: whether there is time for a case. A case whose ranks fail is reported as a problem; the others continue.
    """
    wanted = list(chosen)
    repetitions |= {case.name: (effort.least, 1) for case in wanted if case.bytes > _WARM}
    _warm_up([case for case in wanted if case.bytes <= _WARM], session, effort, repetitions)
    random.Random(f"{seed} {launch} {session.adapter.name} {session.world_size}").shuffle(wanted)
    for case in filter(begin, wanted):
        began = time.monotonic()
        if case.name in repetitions:
            _measure(case, session, repetitions[case.name], results)
        else:
            results.problems.append(f"{case.name}: the ranks failed in the warm-up")
        yield case, time.monotonic() - began


def _warm_up(chosen: list[Case], session: Session, effort: Effort, repetitions: CallRepetitions) -> None:
    """All sizes in one Job; if it fails, one by one, to find the failing size."""
    if chosen and not _look(chosen, session, effort, repetitions):
        for case in chosen:
            _look([case], session, effort, repetitions)


def _look(chosen: list[Case], session: Session, effort: Effort, repetitions: CallRepetitions) -> bool:
    trace = session.run(Job(session.world_size, tuple(case.operation(1, 3, 1) for case in chosen)))
    if not trace.completed:
        return False
    for position, case in enumerate(chosen):
        seconds = float(slowest(stamps(trace, position, "begin"), stamps(trace, position, "end")).min())
        calls = effort.calls(seconds)
        repetitions.setdefault(case.name, (effort.iterations(seconds * calls), calls))
    return True


def _measure(case: Case, session: Session, how: tuple[int, int], results: Results) -> None:
    iterations, calls = how
    trace = session.run(Job(session.world_size, (case.operation(2 if case.bytes <= _WARM else 0, iterations, calls),)))
    if not trace.completed:
        results.problems.append(f"{case.name}: {why(trace)}")
        return
    begin, end = stamps(trace, 0, "begin"), stamps(trace, 0, "end")
    parts = calls * case.messages
    wrong = int(sum(trace.values(0, "wrong")))
    known = results.points.get(case.name)
    results.keep(case.name, begin, end)
    seconds = float(np.median(slowest(begin, end))) / parts
    point = results.add(Point(case.name, case.collective, {}), seconds)
    counts = trace.values(0, "counts")
    point.spread({**spread(begin, end, parts), "queue_share": queue_share(begin, end, trace.values(0, "queued"))})
    point.info.update(
        {
            **case.info(float(np.median(point.data)), results.environment["cores"]),
            "calls": calls,
            "wrong": wrong + (known.info["wrong"] if known else 0),
            "cpu_seconds": [float(cpu) / (iterations * calls) for cpu in trace.values(0, "cpu")],
            "counts": counts if all(counts) else None,
        }
    )
