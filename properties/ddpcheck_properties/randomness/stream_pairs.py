"""Tests of whether two streams of random numbers depend on each other.

Two independent streams of COUNT uniform float32 numbers have 2 COUNT^2 2^-24 = 1/8 numbers in common on average, where x and
1 - x count as one, and more than SHARED with probability below 1e-13. The differences, and the sums, of numbers at equal
positions, taken as turns of a circle, have a mean longer than TURNED with probability exp(-COUNT TURNED^2) < 1e-27.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

import numpy as np

from ddpcheck import assertions
from ddpcheck.causes import randomness as causes
from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.ordered_hypotheses.randomness import OF_ALIKE_STREAMS, OF_DEPENDENT_STREAMS
from ddpcheck.hypotheses.randomness.stream_pairs import AlikeStreams, Source
from ddpcheck.job import Draw, Job
from ddpcheck.seeded_values import Array
from ddpcheck.trace import Trace
from ddpcheck.verdict import Diagnosis, Finding

COUNT = 1024
SHARED = 8
SOME = 3
TURNED = 0.25


def all_apart(job: Job, trace: Trace) -> None:
    """A judge: the streams of different seeds, epochs and ranks, and the common ones, do not depend on each other."""
    found = _sources(job, trace)
    for (first, second), same in _shared(found).items():
        alike = AlikeStreams(first, second, COUNT, SHARED, same, *_in_place(found[first], found[second]))
        assertions.that(
            same <= SHARED,
            f"{_named(second)}: got {same} of {COUNT} random numbers x of {_named(first)}, or 1 - x, but should be others",
            first_cause(OF_ALIKE_STREAMS, alike),
        )
    for first, second, length in _turned(found):
        raise Finding(
            Diagnosis(
                f"{_named(second)}: got {COUNT} random numbers that follow those of {_named(first)} (their differences, or "
                f"sums, are alike: {length:.2f}, where independent ones have less than {TURNED}), but should be independent",
                first_cause(OF_DEPENDENT_STREAMS, [found[first], found[second]]),
            )
        )


def all_begin_apart(job: Job, trace: Trace) -> None:
    """A judge: no two of many streams begin with the same SOME numbers, which chance gives one pair of 4000 with 2^-49."""
    found = _sources(job, trace)
    for one, other in (pairs := _equal(found))[:1]:
        raise Finding(
            Diagnosis(
                f"{_named(other)}: got the random numbers of {_named(one)}, as {len(pairs)} of {len(found)} streams got those of "
                "another one, but should get others",
                (causes.SEED_HASH_TOO_SHORT(count=len(pairs), streams=len(found)),),
            )
        )


def seeds_begin_apart(job: Job, trace: Trace) -> None:
    """A judge: no two of few streams begin with the same 2 * SOME numbers."""
    count = 2 * SOME
    for one, other in _equal(_sources(job, trace)):
        raise Finding(
            Diagnosis(
                f"{_named(other)}: got the random numbers of {_named(one)}, but should get others",
                first_cause(OF_ALIKE_STREAMS, AlikeStreams(one, other, count, 0, count, count, 0)),
            )
        )


def _equal(found: dict[Source, Array]) -> list[tuple[Source, Source]]:
    """Each source whose numbers are those of an earlier one, after the first of these."""
    first: dict[bytes, Source] = {}
    same = [(first.setdefault(numbers.tobytes(), source), source) for source, numbers in found.items()]
    return [(one, other) for one, other in same if one != other]


def _sources(job: Job, trace: Trace) -> dict[Source, Array]:
    """The numbers drawn from each stream."""
    assertions.completed(trace)
    found: dict[Source, Array] = {}
    for position, draw in enumerate(job.operations):
        assert isinstance(draw, Draw)
        common, local = (trace.values(position, kind) for kind in ("common", "local"))
        for place, epoch in enumerate(draw.epochs):
            assert epoch is not None
            found[draw.seed, epoch, None] = common[0][place]
            found |= {(draw.seed, epoch, rank): own[place] for rank, own in enumerate(local)}
    return found


def _turned(found: dict[Source, Array]) -> Iterator[tuple[Source, Source, float]]:
    """Pairs of sources that depend on each other in position, with the measure."""
    turns = np.exp(2j * np.pi * np.stack(list(found.values())))
    alike = np.maximum(abs(turns @ turns.conj().T), abs(turns @ turns.T)) / COUNT
    sources = list(found)
    for second, first in np.argwhere(np.tril(alike, -1) > TURNED).tolist():
        yield sources[first], sources[second], float(alike[second, first])


def _shared(found: dict[Source, Array]) -> dict[tuple[Source, Source], int]:
    """The count of common numbers of each pair of sources that has any, where x and 1 - x count as one."""
    holders: dict[float, list[int]] = {}
    folded = np.concatenate([np.minimum(numbers, 1 - numbers) for numbers in found.values()])
    values, counts = np.unique(folded, return_counts=True)
    several = np.flatnonzero(np.isin(folded, values[counts > 1]))  # nearly always none
    for place in several.tolist():
        holders.setdefault(float(folded[place]), []).append(place // COUNT)
    pairs = Counter(pair for places in holders.values() for pair in combinations(sorted(set(places)), 2))
    sources = list(found)
    return {(sources[first], sources[second]): pairs[first, second] for first, second in sorted(pairs)}


def _named(source: Source) -> str:
    seed, epoch, rank = source
    whose = "the ranks' common stream" if rank is None else f"rank {rank}"
    return f"{whose}, epoch {epoch}, seed {seed}"


def _in_place(one: Array, other: Array) -> tuple[int, int]:
    """The number of positions at which both sources have x, and at which one has x and the other 1 - x."""
    return int((one == other).sum()), int((one == 1 - other).sum())
