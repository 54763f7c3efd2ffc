"""Validates the model: fitted to some of the points, it predicts the others.

Each scenario goes beyond the data in another way. The model is chosen again from the remaining measurements, with
algorithm and breaks. An error of 0.5 is 50 % of the measured time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .fitting import fit, log_error
from .measurements import Point
from .quantities import size_text

BETWEEN_SIZES = "every other size → the sizes between"
LARGER_SIZES = "smaller sizes → larger sizes"
LARGER_WORLDS = "fewer ranks → more ranks"
SMALLEST_WORLD = "fewest ranks only → all others"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One way of holding out points, and predicted / measured of each of them."""

    name: str
    fitted: str
    held_out: str
    ratios: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median |predicted / measured - 1|."""
        return float(np.median([abs(ratio - 1) for ratio in self.ratios]))

    @property
    def worst(self) -> float:
        return max(abs(ratio - 1) for ratio in self.ratios)

    @property
    def bias(self) -> float:
        """The geometric mean of predicted / measured, minus 1: below 0, the model is too optimistic."""
        return math.exp(float(np.mean(np.log(self.ratios)))) - 1


def validate(collective: str, points: Sequence[Point], only: str | None = None) -> tuple[Scenario, ...]:
    """All scenarios for which there are enough sizes or world sizes."""
    sizes = sorted({point.bytes for point in points})
    worlds = sorted({point.world_size for point in points})
    found: list[Scenario] = []

    def hold_out(name: str, is_held_out: Callable[[Point], bool], described: Callable[[Sequence[Point]], str]) -> None:
        kept = [point for point in points if not is_held_out(point)]
        held_out = [point for point in points if is_held_out(point)]
        model = fit(collective, kept, only)
        ratios = tuple(math.exp(log_error(model, point)) for point in held_out)
        found.append(Scenario(name, described(kept), described(held_out), ratios))

    if len(sizes) > 2:
        odd = frozenset(sizes[1::2])
        hold_out(BETWEEN_SIZES, lambda point: point.bytes in odd, _sizes)
    if len(sizes) > 4:
        limit = sizes[-(len(sizes) // 4) - 1]
        hold_out(LARGER_SIZES, lambda point: point.bytes > limit, _sizes)
    if len(worlds) > 2:
        most = worlds[(len(worlds) - 1) // 2]
        hold_out(LARGER_WORLDS, lambda point: point.world_size > most, _worlds)
    if len(worlds) > 1:
        hold_out(SMALLEST_WORLD, lambda point: point.world_size > worlds[0], _worlds)
    return tuple(found)


def relevant(scenarios: Iterable[Scenario], *, beyond_ranks: bool, beyond_bytes: bool) -> tuple[Scenario, ...]:
    """The scenarios whose errors apply to a prediction that goes beyond the data in these ways."""
    names = {LARGER_WORLDS, SMALLEST_WORLD} if beyond_ranks else set()
    names |= {LARGER_SIZES} if beyond_bytes else set()
    return tuple(each for each in scenarios if each.name in (names or {BETWEEN_SIZES}))


def _sizes(points: Sequence[Point]) -> str:
    sizes = [point.bytes for point in points]
    return f"{size_text(min(sizes))} to {size_text(max(sizes))}"


def _worlds(points: Sequence[Point]) -> str:
    return f"{', '.join(map(str, sorted({point.world_size for point in points})))} ranks"
