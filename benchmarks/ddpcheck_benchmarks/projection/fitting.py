"""Fits a cost model to measured times, and finds the algorithm that explains them best.

The relative error is minimised, sum of (model / measured - 1)^2; absolute errors would count only the largest messages.
Features of a time are [1, steps k, volume k]: a call's overhead, messages one after the other, bytes one after the
other; k is the contention of ranks that share a host's cores. Reduced bytes are proportional to moved ones in each
algorithm, so beta is the cost of a byte with its share of reduction and copies.

An algorithm is chosen by its error on held-out measurements, never by its fit. So is a break, a number of bytes from
which another algorithm, or another regime of caches and buffers, begins.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ddpcheck.running.unknown_names import require_known

from .formulas import FORMULAS, Formula, Link
from .measurements import Point, Series
from .nonnegative import Vector, nonnegative_least_squares

Mask = NDArray[np.bool_]

WORTHWHILE = 0.9
"""A break is kept if it reduces the held-out error below this share of the error without it."""
FEWEST_SIZES = 3
"""Least number of sizes on each side of a break: fewer leave nothing to hold out."""
ALIKE = 1.25
"""Algorithms whose held-out errors differ by less than this factor are treated as equal."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Up to this many bytes, this algorithm with these costs: seconds per call, per message, per byte."""

    collective: str
    algorithm: str
    upto: float
    overhead: float
    alpha: float
    beta: float

    def seconds(self, world_size: int, size: float, cores: int | None = None, link: Link | None = None) -> float:
        """Seconds on a host with this many cores; None: every rank has a core. `link` is added to the software's
        time.
        """
        cost = FORMULAS[self.collective][self.algorithm](world_size, size)
        k = 1.0 if cores is None else cost.contention(cores)
        time = self.overhead + k * (cost.steps * self.alpha + cost.moved * self.beta)
        return time if link is None else time + cost.seconds(link)


@dataclass(frozen=True, slots=True)
class Model:
    """Segments by rising bytes; the last has no upper end."""

    segments: tuple[Segment, ...]

    def segment(self, size: float) -> Segment:
        return next(each for each in self.segments if size <= each.upto)

    def within(self, segment: Segment, points: Iterable[Point]) -> list[Point]:
        """The points in this segment."""
        return [point for point in points if self.segment(point.bytes) is segment]

    def seconds(self, world_size: int, size: float, cores: int | None = None, link: Link | None = None) -> float:
        return self.segment(size).seconds(world_size, size, cores, link)


def fit(collective: str, points: Sequence[Point], only: str | None = None) -> Model:
    """The model with the smallest error on held-out measurements; of this algorithm only, if one is given.

    ValueError if there are no points, no such collective, or no such algorithm.
    """
    if not points:
        raise ValueError(f"no measured time of {collective} to fit")
    segments = [
        _fitted(collective, group, _best(collective, group, only)[0], upto)
        for group, upto in _with_ends(_split(collective, tuple(points), only))
    ]
    return Model(tuple(segments))


def instead(model: Model, algorithm: str, points: Sequence[Point]) -> Model:
    """The model with another algorithm for the largest messages."""
    last = model.segments[-1]
    changed = _fitted(last.collective, model.within(last, points), algorithm, last.upto)
    return Model((*model.segments[:-1], changed))


def refit(model: Model, points: Sequence[Point]) -> Model:
    """The same algorithms and breaks, fitted to other points of the same sizes."""
    return Model(
        tuple(
            _fitted(segment.collective, model.within(segment, points), segment.algorithm, segment.upto)
            for segment in model.segments
        )
    )


def bootstrap(model: Model, series: Series, draws: int) -> tuple[Model, ...]:
    """Models of launches drawn with replacement; none for a single launch, which tells nothing about others."""
    if series.launches < 2:
        return ()
    random = np.random.default_rng(0)
    return tuple(refit(model, series.resampled(random)) for _ in range(draws))


def held_out_errors(collective: str, points: Sequence[Point], only: str | None = None) -> dict[str, float]:
    """By algorithm, best first: the mean |ln(predicted / measured)| of every point, predicted from folds without it.

    Of algorithms with equal errors, such as all for two ranks, the first in FORMULAS comes first.
    """
    masks = folds(points)
    scores = {name: _score(_design(collective, points, name), masks) for name in _formulas(collective, only)}
    return dict(sorted(scores.items(), key=lambda item: round(item[1], 6)))


def look_alikes(errors: Mapping[str, float]) -> tuple[str, ...]:
    """The algorithms, best first, whose errors are close to the best one's."""
    best = min(errors.values())
    return tuple(name for name, error in errors.items() if error <= ALIKE * best + 1e-12)


def folds(points: Sequence[Point]) -> list[Mask]:
    """Points to hold out, in turn: every other size, the others, and each world size if there are two or more."""
    sizes = np.array([point.bytes for point in points])
    worlds = np.array([point.world_size for point in points])
    odd = np.isin(sizes, np.unique(sizes)[1::2])
    found: list[Mask] = [odd, ~odd] if odd.any() else []
    if len(set(worlds)) > 1:
        found += [worlds == world for world in sorted(set(worlds))]
    return found


def _best(collective: str, points: Sequence[Point], only: str | None) -> tuple[str, float]:
    errors = held_out_errors(collective, points, only)
    best = next(iter(errors))
    return best, errors[best]


def _score(design: Vector, masks: Sequence[Mask]) -> float:
    # predicted / measured is a row of the design times the coefficients
    ratios = [design[held_out] @ _coefficients(design[~held_out]) for held_out in masks]
    if not ratios:  # a single point: only its fit is known
        ratios = [design @ _coefficients(design)]
    return float(np.mean(np.abs(np.log(np.maximum(np.concatenate(ratios), 1e-9)))))


def log_error(model: Model | Segment, point: Point) -> float:
    """ln(predicted / measured)."""
    predicted = model.seconds(point.world_size, point.bytes, point.cores)
    return math.log(max(predicted, 1e-12) / point.seconds)


def _split(collective: str, points: tuple[Point, ...], only: str | None) -> list[tuple[Point, ...]]:
    """The points in groups by size, as many as pay."""
    sizes = sorted({point.bytes for point in points})
    whole = _best(collective, points, only)[1]
    best: tuple[float, list[tuple[Point, ...]]] = (whole * WORTHWHILE, [])
    for place in range(FEWEST_SIZES, len(sizes) - FEWEST_SIZES + 1):
        groups = [
            tuple(point for point in points if point.bytes < sizes[place]),
            tuple(point for point in points if point.bytes >= sizes[place]),
        ]
        score = sum(_best(collective, group, only)[1] * len(group) for group in groups) / len(points)
        if score < best[0]:
            best = (score, groups)
    return [part for group in best[1] for part in _split(collective, group, only)] or [points]


def _with_ends(groups: Sequence[Sequence[Point]]) -> Iterable[tuple[Sequence[Point], float]]:
    """Each group with the bytes at its end: half way to the next group on a logarithmic axis."""
    for group, following in itertools.pairwise(groups):
        last, first = max(point.bytes for point in group), min(point.bytes for point in following)
        yield group, math.sqrt(max(last, 1) * first)
    yield groups[-1], math.inf


def _fitted(collective: str, points: Sequence[Point], algorithm: str, upto: float) -> Segment:
    overhead, alpha, beta = (float(each) for each in _coefficients(_design(collective, points, algorithm)))
    return Segment(collective, algorithm, upto, overhead, alpha, beta)


def _design(collective: str, points: Sequence[Point], algorithm: str) -> Vector:
    """The features of each point over its measured time, shape (points, 3)."""
    formula = _formulas(collective)[algorithm]
    rows = []
    for point in points:
        cost = formula(point.world_size, point.bytes)
        k = cost.contention(point.cores)
        rows.append([1 / point.seconds, cost.steps * k / point.seconds, cost.moved * k / point.seconds])
    return np.array(rows)


def _coefficients(design: Vector) -> Vector:
    messages = design[:, 1] / design[:, 0]
    if np.ptp(messages) <= 1e-9 * messages[0]:
        # with one world size every call has equally many messages, so a call's cost cannot be separated from theirs; a
        # projection to more ranks must not treat it as constant
        design = design * [0.0, 1.0, 1.0]
    return nonnegative_least_squares(design, np.ones(len(design)))


def _formulas(collective: str, only: str | None = None) -> Mapping[str, Formula]:
    known = FORMULAS[require_known(collective, FORMULAS, "collective")]
    return known if only is None else {only: known[require_known(only, known, f"algorithm of {collective}")]}
