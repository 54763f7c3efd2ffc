"""Projections as tables, with their assumptions beside every number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from ddpcheck.counted_nouns import counted

from .fitting import look_alikes
from .measurements import Point
from .projecting import FEWEST_ERRORS, Fit, Projection, Question, Row
from .quantities import factor_text, percent, size_text, time_text
from .simulation.comparison import Comparison
from .tables import Table

NOT_MEASURED = "-"
FAR = 2.0
"""Beyond this multiple of the measured range, a projection is labelled as far from it."""
LOW_EFFICIENCY = 0.8
"""Below this weak-scaling efficiency, the answer names the number of ranks."""
AGREES = 0.1
"""The largest difference between simulation and formulas under the same assumptions."""


def fit_tables(found: Fit) -> list[Table]:
    """The fitted models, and their errors where they can be measured."""
    series = found.series
    rows, notes = [], []
    for place, (segment, errors) in enumerate(zip(found.model.segments, found.errors, strict=True)):
        inside = [size for size in series.sizes if found.model.segment(size) is segment]
        sizes = f"{size_text(inside[0])} to {size_text(inside[-1])}"
        rows.append((sizes, _behaviour(errors), *_coefficients(found, place), percent(errors[segment.algorithm])))
        if len(look_alikes(errors)) < len(errors):
            listed = ", ".join(f"{name} {percent(error)}" for name, error in errors.items())
            notes.append(f"Mean held-out error by algorithm, {sizes}: {listed}.")
    cores = "/".join(map(str, sorted({each.cores for each in series.measurements})))
    notes.append(
        f"Measured: {', '.join(map(str, series.world_sizes))} ranks on {cores} cores, {size_text(series.sizes[0])} to "
        f"{size_text(series.sizes[-1])}, {counted(series.launches, 'time')} each; fitted to their "
        "low quartiles. In brackets, 90 % of what other launches would give."
    )
    header = ("sizes", "behaves like", "a call", "a message", "a byte", "held-out error")
    tables = [Table(f"Fit: {series.title}", header, tuple(rows), tuple(notes), words=2)]
    if found.scenarios:
        checked = tuple(
            (
                each.name,
                each.fitted,
                each.held_out,
                str(len(each.ratios)),
                percent(each.median),
                percent(each.worst),
                percent(each.bias, sign=True),
            )
            for each in found.scenarios
        )
        columns = ("scenario", "fitted to", "predicted", "points", "median error", "worst error", "bias")
        tables.append(Table(f"Held out: {series.title}", columns, checked, words=3))
    return tables


def _behaviour(errors: Mapping[str, float]) -> str:
    """Descriptions of each model, best first."""
    alike = look_alikes(errors)
    if len(errors) > 1 and len(alike) == len(errors):
        return "any: not told apart"
    return alike[0] + (f" (or {', '.join(alike[1:])})" if len(alike) > 1 else "")


def all_reduce_table(projections: Sequence[Projection], question: Question) -> Table:
    header = ("all-reduce by", "ranks", "× ranks", "× bytes", "time", "90 % interval", "held-out error", "lower bound")
    rows = tuple(
        (
            projection.source,
            str(row.ranks),
            *_factors(row),
            time_text(row.all_reduce),
            _interval(row, row.all_reduce_interval),
            _error(row),
            time_text(row.bound) if row.bound is not None else NOT_MEASURED,
        )
        for projection in projections
        for row in projection.rows
    )
    return Table(
        f"Projected: all-reduce of {size_text(question.model_bytes)}", header, rows, _interval_notes(projections)
    )


def step_table(projections: Sequence[Projection], question: Question) -> Table:
    header = (
        "all-reduce by", "ranks", "compute", "step", "90 % interval", "efficiency", "communication", "exposed", "hidden",
        "held-out error",
    )  # fmt: skip
    rows = tuple(
        (
            projection.source,
            str(row.ranks),
            time_text(row.compute),
            time_text(row.step.total),
            _interval(row, row.step_interval),
            percent(row.efficiency),
            time_text(row.step.communication),
            time_text(row.step.exposed),
            percent(row.step.hidden),
            _error(row),
        )
        for projection in projections
        for row in projection.rows
    )
    return Table(
        f"Projected: step with {size_text(question.model_bytes)} of gradients in {len(question.buckets)} buckets; weak scaling",
        header,
        rows,
        _interval_notes(projections),
    )


def answer_table(projections: Sequence[Projection], question: Question) -> Table:
    """The step at the most ranks, and the fewest ranks with a low efficiency: what a reader asks first."""
    most = question.ranks[-1]
    header = ("all-reduce by", "compute", "step", "90 % interval", "efficiency", f"below {percent(LOW_EFFICIENCY)}")
    rows = tuple(
        (
            projection.source,
            time_text(projection.rows[-1].compute),
            time_text(projection.rows[-1].step.total),
            _interval(projection.rows[-1], projection.rows[-1].step_interval),
            percent(projection.rows[-1].efficiency),
            next((f"at {row.ranks} ranks" for row in projection.rows if row.efficiency < LOW_EFFICIENCY), "at none"),
        )
        for projection in projections
    )
    measured = [row.times_ranks for each in projections for row in each.rows[-1:] if row.times_ranks is not None]
    notes = _interval_notes(projections)
    if measured and max(measured) > FAR:
        notes = (
            *notes,
            f"{most} ranks are {factor_text(max(measured))} the measured number: a scenario, not a prediction.",
        )
    return Table(f"At {most} ranks: step with {size_text(question.model_bytes)} of gradients", header, rows, notes)


def _interval_notes(projections: Iterable[Projection]) -> tuple[str, ...]:
    """The reason of missing intervals."""
    if all(row.held_out is None or row.held_out >= FEWEST_ERRORS for each in projections for row in each.rows):
        return ()
    return (
        f"An interval needs {FEWEST_ERRORS} errors that held-out predictions of this kind have: for more ranks, those from "
        "smaller to larger worlds. Measure three world sizes or more, and more sizes.",
    )


def agreement_table(compared: Sequence[Comparison]) -> Table:
    worst = max(abs(each.difference) for each in compared)
    note = f"Largest difference {100 * worst:.1f} %: {'they agree' if worst <= AGREES else 'THEY DISAGREE by more than 10 %'}."
    return Table("SimGrid and the formulas where both assume the same", *_compared(compared), (note,), words=2)


def measured_table(found: Fit, compared: Sequence[tuple[Point, Comparison]]) -> Table:
    header = ("algorithm", "ranks", "size", "measured", "formula", "SimGrid", "SimGrid / measured - 1")
    rows = tuple(
        (
            each.algorithm,
            str(each.ranks),
            size_text(each.bytes),
            time_text(point.seconds),
            time_text(each.formula),
            time_text(each.simulated),
            percent(each.simulated / point.seconds - 1, sign=True),
        )
        for point, each in compared
    )
    note = "With the costs fitted to all points, these among them; only where every rank had a core of its own."
    return Table(f"SimGrid and the measurements: {found.series.title}", header, rows, (note,))


def departure_table(compared: Sequence[Comparison]) -> Table:
    note = "Effects that the formulas leave out, by SimGrid, one at a time; a positive difference is time that they leave out."
    return Table("SimGrid and the formulas where they differ by design", *_compared(compared), (note,), words=2)


def _compared(compared: Sequence[Comparison]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    header = ("cluster", "algorithm", "ranks", "size", "formula", "SimGrid", "difference")
    return header, tuple(
        (
            each.case,
            each.algorithm,
            str(each.ranks),
            size_text(each.bytes),
            time_text(each.formula),
            time_text(each.simulated),
            f"{100 * each.difference:+.1f} %".replace("-0.0", "+0.0"),
        )
        for each in compared
    )


def _coefficients(found: Fit, place: int) -> tuple[str, str, str]:
    """Seconds per call and per message, and nanoseconds per byte, of one segment."""
    segment = found.model.segments[place]
    others = [draw.segments[place] for draw in found.draws]
    return (
        time_text(segment.overhead) + _spread([other.overhead for other in others], time_text),
        time_text(segment.alpha) + _spread([other.alpha for other in others], time_text),
        _nanoseconds(segment.beta) + _spread([other.beta for other in others], _nanoseconds),
    )


def _spread(values: Sequence[float], text: Callable[[float], str]) -> str:
    return f" ({' – '.join(text(float(bound)) for bound in np.quantile(values, (0.05, 0.95)))})" if values else ""


def _nanoseconds(seconds: float) -> str:
    return f"{seconds * 1e9:.3g} ns"


def _factors(row: Row) -> tuple[str, str]:
    return (
        factor_text(row.times_ranks) if row.times_ranks is not None else NOT_MEASURED,
        factor_text(row.times_bytes) if row.times_bytes is not None else NOT_MEASURED,
    )


def _interval(row: Row, interval: tuple[float, float] | None) -> str:
    if interval is None:
        return NOT_MEASURED if row.held_out is None else f"none: {row.held_out} of {FEWEST_ERRORS}"
    if not all(map(math.isfinite, interval)):
        return NOT_MEASURED
    return f"{time_text(interval[0])} – {time_text(interval[1])}"


def _error(row: Row) -> str:
    if row.median_error is None or row.worst_error is None:
        return NOT_MEASURED
    return f"{percent(row.median_error)}, worst {percent(row.worst_error)}"
