"""One launch: fresh process groups of both sides, which run Jobs in turns."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from ddpcheck import assertions
from ddpcheck.contract.adapter import Adapter
from ddpcheck.ranks.attaching import StartFailed
from ddpcheck.seeded_values import Array
from ddpcheck.session import Session
from ddpcheck.verdict import Finding

from .compared_revision import Side, Unusable
from .gate_benchmarks import Benchmark

Counts = tuple[Mapping[str, float], ...]

_DEADLINE = 60.0
"""Seconds for one burst."""


@dataclass(frozen=True)
class Toss:
    """The side whose ranks are started first, and the side with the first burst."""

    started_first: int
    works_first: int

    def reversed(self) -> Toss:
        return Toss(1 - self.started_first, 1 - self.works_first)

    @staticmethod
    def of(seed: int, stage: str, launch: int) -> Toss:
        """The tosses of a confirmation are those of the first stage, reversed."""
        if stage == "confirmation":
            return Toss.of(seed, "measurement", launch).reversed()
        drawn = random.Random(f"{seed} {stage} {launch}")
        return Toss(drawn.randrange(2), drawn.randrange(2))


@dataclass
class Seen:
    """Findings of one benchmark beside durations: wrong elements, and all distinct counts, by side."""

    wrong: list[int] = field(default_factory=lambda: [0, 0])
    counts: tuple[list[Counts | None], list[Counts | None]] = field(default_factory=lambda: ([], []))

    def add(self, side: int, wrong: int, counts: Counts | None) -> None:
        self.wrong[side] += wrong
        if counts not in self.counts[side]:
            self.counts[side].append(counts)


class Pairing:
    """Two sides' Sessions. Each launch() starts them afresh; close() ends them."""

    def __init__(self, adapter: Adapter, world_size: int, sides: Sequence[Side]) -> None:
        self.sides = sides
        self._promised = adapter.capabilities
        self._world_size = world_size
        self._sessions = [Session(adapter, world_size, home=side.home, deadline=_DEADLINE) for side in sides]

    @contextmanager
    def launch(self, toss: Toss) -> Iterator[None]:
        """A context with running ranks of both sides."""
        try:
            for side in (toss.started_first, 1 - toss.started_first):
                try:
                    self._sessions[side].start()
                except StartFailed as error:
                    raise Unusable(f"{self._named(side)}: the ranks did not start: {error}\n{error.details}") from error
            yield
        except BaseException:
            self.close(orderly=False)
            raise
        self.close()

    def close(self, *, orderly: bool = True) -> None:
        for session in self._sessions:
            session.close(orderly=orderly)

    def burst(self, side: int, benchmark: Benchmark, iterations: int, seen: Seen) -> Array:
        """Seconds of each timed iteration on each rank: (iterations, ranks)."""
        trace = self._sessions[side].run(benchmark.job(self._world_size, iterations, self._promised))
        try:
            assertions.completed(trace)
        except Finding as finding:
            raise Unusable(f"{self._named(side)}: {benchmark.name} did not complete: {finding}") from None
        counts = benchmark.counts(trace)
        seen.add(side, benchmark.wrong(trace), counts)
        return benchmark.durations(trace)

    def measure(
        self, benchmarks: Sequence[Benchmark], pairs: int, toss: Toss, seen: Mapping[str, Seen]
    ) -> dict[str, Array]:
        """One launch: for each benchmark (pairs, sides, iterations, ranks). Benchmarks take turns, too."""
        made = {each.name: np.empty((pairs, 2, each.iterations, self._world_size)) for each in benchmarks}
        with self.launch(toss):
            for pair in range(pairs):
                # A B, B A, B A, A B: drift over four or eight bursts cancels
                first = toss.works_first if pair % 4 in (0, 3) else 1 - toss.works_first
                for benchmark in benchmarks:
                    for side in (first, 1 - first):
                        times = self.burst(side, benchmark, benchmark.iterations, seen[benchmark.name])
                        made[benchmark.name][pair, side] = times
        return made

    def _named(self, side: int) -> str:
        return f"{self.sides[side].name} ({self.sides[side].revision})"
