"""Training steps of one launch, with communication and without, in turn, in one process: T(N) and T_compute(N)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ddpcheck.contract import Capabilities, ReplicaMethod, needs
from ddpcheck.job import MeasureCollective
from ddpcheck.session import Session
from ddpcheck.trace import Trace

from .iteration_count import Effort
from .pytest_benchmark_records import Point, Results
from .rank_times import Floats, queue_share, slowest, spread, stamps, why
from .step_cases import BURSTS, StepCase
from .step_parts import step_parts

_WARMUPS = (
    8  # torch's DDP rebuilds its buckets after the first step; others decide within seven steps whether overlap pays
)
_AGAIN = 2
_COUNTED = 3
StepRepetitions = dict[str, int]
"""Steps of each burst, by the name of the case; decided in the first launch for all launches."""


Sent = Callable[[], Sequence[int]]
"""Bytes that each host has sent so far, by the counters of its interface."""


def measure_step(
    session: Session,
    case: StepCase,
    effort: Effort,
    repetitions: StepRepetitions,
    results: Results,
    sent: Sent | None = None,
) -> None:
    """Measure one case in this Session, and add it to the results."""
    if any(case.delays):
        repetitions[case.name] = effort.steps(sum(case.delays))
    elif case.name not in repetitions:
        trace = session.run(case.job([case.steps(2, 3)]))
        if not trace.completed:
            _say_why(trace, case, results)
            return
        seconds = float(slowest(stamps(trace, 0, "begin"), stamps(trace, 0, "end")).min())
        repetitions[case.name] = effort.steps(seconds)
    promises = session.capabilities
    modes = [True, False] if promises.has(ReplicaMethod.NO_SYNC) else [True]
    trace = session.run(case.job(_parts(case, modes, repetitions[case.name], promises)))
    if not trace.completed:
        _say_why(trace, case, results)
        return
    _add(trace, case, modes, results)
    if sent is not None:
        results.points[case.name].info["wire_bytes"] = _wire_bytes(session, case, sent)


def _wire_bytes(session: Session, case: StepCase, sent: Sent) -> list[float] | None:
    """Bytes that each host sends for one step, counted by the kernel: a difference, because ranks also send when they
    start. None if a rank failed.
    """
    found = []
    for steps in (1, 1 + _COUNTED):
        before = sent()
        if not session.run(case.job([case.steps(0, steps)])).completed:
            return None
        found.append([now - then for now, then in zip(sent(), before, strict=True)])
    return [(more - few) / _COUNTED for few, more in zip(*found, strict=True)]


def _parts(case: StepCase, modes: list[bool], steps: int, promises: Capabilities) -> list[Any]:
    found: list[Any] = []
    for burst in range(BURSTS):
        found += [case.steps(_WARMUPS if synced and not burst else _AGAIN, steps, synced=synced) for synced in modes]
    if needs.collectives.operations("all_reduce").lacking(promises, case.world_size) is None:
        found.append(MeasureCollective("all_reduce", case.parameters, iterations=max(3, steps)))
    return found


def _say_why(trace: Trace, case: StepCase, results: Results) -> None:
    failed = trace.first_failure
    # the contract asks for a ValueError for an option that make_replica() does not have
    if case.options and failed is not None and failed.without_replica and "\nValueError:" in failed.error:
        results.skip(f"{case.adapter}: it has no option {case.options[0][0]}")
    else:
        results.problems.append(f"{case.name}: {why(trace)}")


def _add(trace: Trace, case: StepCase, modes: list[bool], results: Results) -> None:
    bursts = len(modes)
    synced = [bursts * burst for burst in range(BURSTS)]
    begin, middle, end = (_joined(trace, synced, name) for name in ("begin", "backward_end", "end"))
    step = float(np.median(slowest(begin, end)))
    launch: dict[str, float | None] = dict.fromkeys(("compute", "compute_backward", "comm_alone"))
    if len(modes) > 1:
        local = [position + 1 for position in synced]
        starts = _joined(trace, local, "begin")
        launch["compute"] = float(np.median(slowest(starts, _joined(trace, local, "end"))))
        launch["compute_backward"] = float(np.median(_joined(trace, local, "backward_end") - starts))
    alone = bursts * BURSTS
    if len(trace.ranks[0].records) > alone:
        launch["comm_alone"] = float(np.median(slowest(stamps(trace, alone, "begin"), stamps(trace, alone, "end"))))
    launch["optimizer"] = float(np.median(end - middle))
    results.keep(case.name, begin, end)
    point = results.add(Point(case.name, f"step {case.model} {case.scaling}", {}), step)
    steps = begin.shape[1]
    counts = [[record["counts"] for record in rank] for rank in _values(trace, synced)]
    per_launch: dict[str, list[Any]] = point.info.setdefault("per_launch", {})
    for name, value in launch.items():
        per_launch.setdefault(name, []).append(value)
    point.info.update(
        {
            **case.info(results.environment["cores"]),
            "cpu_seconds": [sum(record["cpu"] for record in rank) / steps for rank in _values(trace, synced)],
            "peak_kib": [max(record["peak"] for record in rank) for rank in _values(trace, synced)],
            "counts": [_per_step(rank, steps) for rank in counts] if all(map(all, counts)) else None,
            "timeline": _timeline(trace, synced[-1]),
        }
    )
    first = synced[0]
    waited = queue_share(stamps(trace, first, "begin"), stamps(trace, first, "end"), trace.values(first, "queued"))
    point.spread({**spread(begin, end), "queue_share": waited})
    point.info["parts"] = step_parts(point.data, point.info)


def _joined(trace: Trace, operations: list[int], name: str) -> Floats:
    return np.concatenate([stamps(trace, operation, name) for operation in operations], axis=1)


def _values(trace: Trace, operations: list[int]) -> list[list[dict[str, Any]]]:
    return [[rank.values(operation) for operation in operations] for rank in trace.ranks]


def _per_step(counts: list[dict[str, int]], steps: int) -> dict[str, float]:
    return {name: sum(count[name] for count in counts) / steps for name in counts[0]}


def _timeline(trace: Trace, operation: int) -> list[list[list[Any]]]:
    """(name, begin, end) of the last step's parts on every rank, in seconds since the first rank began it."""
    every = [rank.values(operation) for rank in trace.ranks]
    first = min(float(values["begin"][-1]) for values in every)
    found = []
    for values in every:
        begin, middle, end = (float(values[name][-1]) for name in ("begin", "backward_end", "end"))
        told = values["timeline"] or [["forward and backward", begin, middle]]
        spans = [*told, ["optimizer", middle, end]]
        found.append([[name, start - first, stop - first] for name, start, stop in spans])
    return found
