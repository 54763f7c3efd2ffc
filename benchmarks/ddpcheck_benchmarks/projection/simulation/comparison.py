"""Compares the simulation with the formulas, where they should agree and where they should differ.

They agree on one switch with equal links and ranks that begin together. The formulas have no leaf switches with fewer
links up than down, no slow link and no late rank: the simulation shows the cost of these.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..fitting import Model, Segment
from ..formulas import FORMULAS, Link
from ..measurements import Point
from .runner import Cluster, simulate
from .schedules import SCHEDULES

ALGORITHMS = ("ring", "recursive doubling")
HOSTS_PER_LEAF = 8
LEAVES = 4


@dataclass(frozen=True, slots=True)
class Comparison:
    """Seconds of one all-reduce by formula and by simulation."""

    case: str
    algorithm: str
    ranks: int
    bytes: float
    formula: float
    simulated: float

    @property
    def difference(self) -> float:
        """Simulated / formula - 1."""
        return self.simulated / self.formula - 1


def agreement(link: Link, ranks: Sequence[int], sizes: Sequence[float]) -> Iterator[Comparison]:
    """One flat switch, no contention: formula and simulation assume the same."""
    for algorithm in ALGORITHMS:
        for p in ranks:
            yield from _compared("one switch", algorithm, Cluster(p, link), sizes)


def departures(link: Link, size: float) -> Iterator[Comparison]:
    """Clusters that break an assumption of the formulas, one at a time."""
    p = HOSTS_PER_LEAF * LEAVES
    shuffled = random.Random(0).sample(range(p), p)
    flat = Cluster(p, link)
    for algorithm in ALGORITHMS:
        formula = _formula(algorithm, p, size, link)
        half = replace(flat, slow_links={p // 2: 0.5})
        late = replace(flat, late={p // 2: formula / 2})
        yield from _compared("one host's link at half its bandwidth", algorithm, half, [size])
        yield from _compared("one rank begins half an all-reduce later", algorithm, late, [size])
        for uplinks in (HOSTS_PER_LEAF, HOSTS_PER_LEAF // 4):
            fat_tree = replace(flat, hosts_per_leaf=HOSTS_PER_LEAF, uplinks=uplinks)
            name = f"fat tree {HOSTS_PER_LEAF // uplinks}:1, {LEAVES} leaves of {HOSTS_PER_LEAF}"
            yield from _compared(f"{name}, ranks in order", algorithm, fat_tree, [size])
            yield from _compared(f"{name}, ranks anywhere", algorithm, fat_tree, [size], shuffled)


def against_measured(model: Model, points: Iterable[Point]) -> Iterator[tuple[Point, Comparison]]:
    """The simulation with the fitted costs, and the times measured with a core for each rank."""
    groups: dict[tuple[Segment, int], list[Point]] = {}
    for point in points:
        segment = model.segment(point.bytes)
        if point.world_size <= point.cores and segment.algorithm in SCHEDULES:
            groups.setdefault((segment, point.world_size), []).append(point)
    for (segment, p), group in groups.items():
        cluster = Cluster(p, Link(segment.alpha, segment.beta))
        seconds = simulate(cluster, SCHEDULES[segment.algorithm](p), [point.bytes for point in group])
        for point, simulated in zip(group, seconds, strict=True):
            formula = segment.seconds(p, point.bytes)
            yield (
                point,
                Comparison("measured", segment.algorithm, p, point.bytes, formula, segment.overhead + simulated),
            )


def _compared(
    case: str, algorithm: str, cluster: Cluster, sizes: Sequence[float], places: Sequence[int] | None = None
) -> Iterator[Comparison]:
    schedule = SCHEDULES[algorithm](cluster.hosts)
    if places is not None:
        schedule = schedule.placed(places)
    for size, seconds in zip(sizes, simulate(cluster, schedule, sizes), strict=True):
        formula = _formula(algorithm, cluster.hosts, size, cluster.link)
        yield Comparison(case, algorithm, cluster.hosts, size, formula, seconds)


def _formula(algorithm: str, p: int, size: float, link: Link) -> float:
    return FORMULAS["all_reduce"][algorithm](p, size).seconds(link)
