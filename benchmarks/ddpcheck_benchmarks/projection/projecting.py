"""Projects measured times, a link, or both, to all-reduce and step times of a larger world."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from .fitting import Model, bootstrap, fit, held_out_errors, instead, look_alikes
from .formulas import FORMULAS, Link, lower_bound
from .measurements import Series
from .steps import Bucket, Compute, Step, step
from .validation import Scenario, relevant, validate

DRAWS = 100
FEWEST_ERRORS = 9
"""Held-out errors that an interval needs: a further error exceeds the largest of n with probability 1 / (n + 1)."""
CHOSEN_BY_LIBRARIES = ("ring", "recursive doubling", "Rabenseifner")
"""The algorithms among which a library chooses by size, for an all-reduce on a switch."""

Interval = tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Question:
    """The scenario: this many ranks, one per host, on this link; None: on the measured host, with a core for each
    rank.
    """

    ranks: tuple[int, ...]
    link: Link | None
    model_bytes: float
    buckets: tuple[Bucket, ...]
    compute: Compute
    slowed_communication: float = 1.0
    slowed_compute: float = 1.0

    def step(self, p: int, all_reduce: Callable[[float], float]) -> Step:
        return step(
            self.compute,
            self.buckets,
            all_reduce,
            p,
            slowed_communication=self.slowed_communication,
            slowed_compute=self.slowed_compute,
        )


@dataclass(frozen=True, slots=True)
class Fit:
    """A series with its model, the model's errors beyond its data, and models of other launches.

    `errors` has, for each segment of the model, the held-out error of every algorithm, best first. `alternatives` are
    models, with those of other launches, for each other algorithm that could explain large messages.
    """

    series: Series
    model: Model
    errors: tuple[dict[str, float], ...]
    scenarios: tuple[Scenario, ...]
    draws: tuple[Model, ...]
    alternatives: Mapping[str, tuple[Model, tuple[Model, ...]]]


@dataclass(frozen=True, slots=True)
class Row:
    """One world size: seconds, with 90 % intervals if enough errors are known. held_out: the number of errors; None if
    nothing was measured.
    """

    ranks: int
    times_ranks: float | None
    times_bytes: float | None
    all_reduce: float
    all_reduce_interval: Interval
    bound: float | None
    step: Step
    step_interval: Interval
    efficiency: float
    median_error: float | None
    worst_error: float | None
    held_out: int | None

    @property
    def compute(self) -> float:
        """Seconds of a rank's own work, which adapters with measured steps have of their own."""
        return self.efficiency * self.step.total


@dataclass(frozen=True, slots=True)
class Projection:
    """All rows of one way to reduce. guessed: the implementation, if its algorithm is one of several possible ones."""

    source: str
    rows: tuple[Row, ...]
    guessed: str = ""


def fitted(series: Series, only: str | None = None) -> Fit:
    """The fit of a series, by the algorithm that predicts best, or by `only` if the algorithm is known."""
    points = series.points()
    model = fit(series.collective, points, only)
    errors = tuple(held_out_errors(series.collective, model.within(each, points), only) for each in model.segments)
    others: dict[str, tuple[Model, tuple[Model, ...]]] = {}
    for name in look_alikes(errors[-1]):
        if name != model.segments[-1].algorithm:
            other = instead(model, name, points)
            others[name] = (other, bootstrap(other, series, DRAWS))
    scenarios = validate(series.collective, points, only)
    return Fit(series, model, errors, scenarios, bootstrap(model, series, DRAWS), others)


def projected(found: Fit, question: Question) -> Iterator[Projection]:
    """The implementation's time in the scenario: its own software as measured here, plus the link's time.

    First by the algorithm that predicts best, then by each algorithm with a similar error.
    """
    name = found.series.adapter + (" in place" if found.series.in_place else "")
    what = "software as measured + link" if question.link else "as measured, a core for each rank"
    if not found.alternatives:
        yield Projection(f"{name}, {what}", _rows(found, found.model, found.draws, question))
        return
    best = found.model.segments[-1].algorithm
    for algorithm, (model, draws) in {best: (found.model, found.draws), **found.alternatives}.items():
        yield Projection(f"{name}, if {algorithm}", _rows(found, model, draws, question), guessed=name)


def shortened(projections: Sequence[Projection]) -> list[Projection]:
    """Keep the shortest and the longest projection of one implementation, at the most ranks."""
    kept: list[Projection] = []
    for name, group in groupby(projections, key=lambda each: each.guessed):
        own = list(group)
        if name:
            own.sort(key=lambda each: each.rows[-1].all_reduce)
            own = [own[0], own[-1]]
        kept += own
    return kept


def _rows(found: Fit, model: Model, draws: Sequence[Model], question: Question) -> tuple[Row, ...]:
    link = question.link
    rows = []
    for p in question.ranks:
        times_ranks, times_bytes = p / found.series.world_sizes[-1], question.model_bytes / found.series.sizes[-1]
        scenarios = relevant(found.scenarios, beyond_ranks=times_ranks > 1, beyond_bytes=times_bytes > 1)
        all_reduce = _with_link(model, p, link)
        here = question.step(p, all_reduce)
        ratios = [ratio for each in scenarios for ratio in each.ratios]
        one, whole = _intervals([model, *draws], question, p, ratios)
        rows.append(
            Row(
                p,
                times_ranks,
                times_bytes,
                all_reduce(question.model_bytes),
                one,
                lower_bound(p, question.model_bytes, link) if link else None,
                here,
                whole,
                question.compute.total / here.total,
                max((each.median for each in scenarios), default=None),
                max((each.worst for each in scenarios), default=None),
                len(ratios),
            )
        )
    return tuple(rows)


def on_link_alone(question: Question, link: Link) -> tuple[Projection, ...]:
    """A library without software costs on this link: always by a ring, and by the best algorithm for each bucket."""
    return tuple(
        Projection(source, tuple(_ideal(question, link, names, p) for p in question.ranks))
        for source, names in (
            ("link alone, ring", ("ring",)),
            ("link alone, best algorithm by size", CHOSEN_BY_LIBRARIES),
        )
    )


def _ideal(question: Question, link: Link, names: Sequence[str], p: int) -> Row:
    def all_reduce(size: float) -> float:
        return min(FORMULAS["all_reduce"][name](p, size).seconds(link) for name in names)

    here = question.step(p, all_reduce)
    bound = lower_bound(p, question.model_bytes, link)
    whole = all_reduce(question.model_bytes)
    efficiency = question.compute.total / here.total
    return Row(p, None, None, whole, None, bound, here, None, efficiency, None, None, None)


def _with_link(model: Model, p: int, link: Link | None) -> Callable[[float], float]:
    return lambda size: model.seconds(p, size, None, link)


def _intervals(
    models: Sequence[Model], question: Question, p: int, ratios: Sequence[float]
) -> tuple[Interval, Interval]:
    """5 % to 95 % of the fits of other launches, each with the error of a held-out prediction, widened to the estimate:
    the estimate is not corrected by the errors, which may all lie on one side of it. models: that of the estimate first.

    None if too few errors are known: the spread of launches alone would be too narrow.
    """
    if len(ratios) < FEWEST_ERRORS:
        return None, None
    random = np.random.default_rng(0)
    ones, steps = [], []
    others = models[1:] or models
    for draw in range(DRAWS):
        all_reduce = _with_link(others[draw % len(others)], p, question.link)
        ratio = float(random.choice(np.asarray(ratios)))
        ones.append(all_reduce(question.model_bytes) / ratio)
        steps.append(question.step(p, lambda size, by=all_reduce, off=ratio: by(size) / off).total)  # type: ignore[misc]
    estimate = _with_link(models[0], p, question.link)
    return _range(ones, estimate(question.model_bytes)), _range(steps, question.step(p, estimate).total)


def _range(values: Sequence[float], estimate: float) -> tuple[float, float]:
    low, high = np.quantile(values, (0.05, 0.95))
    return min(float(low), estimate), max(float(high), estimate)
