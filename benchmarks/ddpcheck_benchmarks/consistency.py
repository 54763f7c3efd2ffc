"""Performance rules without a baseline: an implementation is compared with itself, so any machine can judge them.

A collective should not be slower than other collectives that have the same effect (Träff, Gropp and Thakur 2010; Hunold
and Carpen-Amarie 2018). A rule is violated only if the rank-sum test over launches is significant at 5 %, and the
difference is larger than the time of a barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median
from typing import Any, Literal

from ddpcheck.rank_sum import larger

from .pytest_benchmark_records import Point

LEVEL = 0.05
Verdict = Literal["holds", "violated", "too few launches"]
Key = tuple[str, int]
"""Collective (all_reduce_in_place counts as its own) and bytes."""


@dataclass(frozen=True, slots=True)
class GuidelineVerdict:
    """One rule at one size: the seconds of both sides, and the probability p that the left one is larger by chance."""

    rule: str
    adapter: str
    world_size: int
    bytes: int
    left: float
    right: float
    p: float
    verdict: Verdict


def judged(points: Iterable[Point]) -> list[dict[str, Any]]:
    """Every rule at every size of every implementation with two ranks or more, as plain data."""
    groups: dict[tuple[str, int], dict[Key, Sequence[float]]] = {}
    for point in points:
        info = point.info
        if info["kind"] == "collective" and info["world_size"] > 1:
            name = info["collective"] + "_in_place" * info["in_place"]
            groups.setdefault((info["adapter"], info["world_size"]), {})[name, info["bytes"]] = point.data
    return [asdict(one) for place, data in groups.items() for one in _of_one(*place, data)]


def _of_one(adapter: str, world_size: int, data: dict[Key, Sequence[float]]) -> Iterator[GuidelineVerdict]:
    allowance = median(data[barrier]) if (barrier := ("barrier", 0)) in data else 0.0
    for rule, size, left, right in _pairs(data):
        p = larger(left, right)
        excess = median(left) - median(right)
        verdict: Verdict = "violated" if p <= LEVEL and excess > allowance else "holds"
        if excess > allowance and larger([1.0] * len(left), [0.0] * len(right)) > LEVEL:
            verdict = "too few launches"
        yield GuidelineVerdict(rule, adapter, world_size, size, median(left), median(right), p, verdict)


def _pairs(data: dict[Key, Sequence[float]]) -> Iterator[tuple[str, int, Sequence[float], Sequence[float]]]:
    """(rule, bytes, left, right): left should not be larger than right."""
    for (name, size), left in sorted(data.items()):
        for rule, of, right in _RULES:
            made = right(data, size) if name == of else None
            if made is not None:
                yield rule, size, left, made
    for name in sorted({name for name, _ in data}):
        own = sorted(size for collective, size in data if collective == name)
        for small, large in pairwise(own):
            yield f"{name}: no slower with fewer bytes", small, data[name, small], data[name, large]
            if large % small == 0:
                several = [large // small * value for value in data[name, small]]
                yield f"{name}: no slower than in parts", large, data[name, large], several


def _alone(name: str) -> Callable[[dict[Key, Sequence[float]], int], Sequence[float] | None]:
    return lambda data, size: data.get((name, size))


def _both(data: dict[Key, Sequence[float]], size: int) -> Sequence[float] | None:
    first, second = data.get(("reduce_scatter", size)), data.get(("all_gather", size))
    return None if first is None or second is None else [a + b for a, b in zip(first, second, strict=False)]


_RULES: tuple[tuple[str, str, Callable[[dict[Key, Sequence[float]], int], Sequence[float] | None]], ...] = (
    ("all_reduce <= reduce_scatter + all_gather", "all_reduce", _both),
    ("all_reduce in place <= all_reduce", "all_reduce_in_place", _alone("all_reduce")),
    ("reduce_scatter <= all_reduce", "reduce_scatter", _alone("all_reduce")),
    ("all_gather <= all_reduce", "all_gather", _alone("all_reduce")),
    ("broadcast <= all_reduce", "broadcast", _alone("all_reduce")),
)
"""The last three rules: an all_reduce with zeros on the other ranks has the same effect."""
