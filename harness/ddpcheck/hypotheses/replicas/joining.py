"""Causes of wrong parameters after join()."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice

import numpy as np

from ...causes import Cause
from ...causes import replicas as causes
from ...contract import Capabilities
from ...job import Job, Join
from ...oracle import Oracle
from ...seeded_values import Array
from ...trace import Trace


def why_other_parameters(job: Job, trace: Trace, promised: Capabilities) -> Iterator[Cause]:
    """Hypotheses about the parameters after join()."""
    join, *rest = job.operations
    assert isinstance(join, Join)
    longest = join.rounds()
    again = tuple((*batches, *batches[-1:] * (longest - len(batches))) for batches in join.batches)
    stale = replace(job, operations=(Join(again), *rest))
    by_world, by_live = (promised.but(join=rule) for rule in ("divide_by_initial_world", "divide_by_live_ranks"))
    wrong, said = (by_live, "the number of ranks that still have batches")
    if promised.replica.join == "divide_by_live_ranks":
        wrong, said = (by_world, "the world size")
    got = trace.values(1, "parameters")
    right = _after_join(job, promised)
    if all(_near(rank, right) for rank in got):
        yield causes.JOIN_LEAVES_STATE()
    for other, assumed, cause in (
        (job, wrong, causes.JOIN_WRONG_DIVISOR(divisor=said)),
        (stale, by_world, causes.JOIN_STALE()),
    ):
        expected = _after_join(other, assumed)
        if _near(got[0], expected) and not _near(right, expected):
            yield cause
    if any(not np.array_equal(got[0][name], rank[name]) for rank in got for name in rank):
        yield causes.JOIN_STEPS_MISSING()


def _after_join(job: Job, promised: Capabilities) -> dict[str, Array]:
    """The expected values of rank 0 after join()."""
    *_, entries = (moment.arrays["parameters"] for moment in islice(Oracle(job, promised).walk(), 2) if moment.arrays)
    return {name: entry.value.exact[0] for name, entry in entries.items()}


def _near(got: Mapping[str, Array], expected: Mapping[str, Array]) -> bool:
    return all(np.allclose(got[name], array, rtol=1e-4, atol=1e-6) for name, array in expected.items())
