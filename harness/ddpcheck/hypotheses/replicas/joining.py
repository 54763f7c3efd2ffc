"""Hypotheses about wrong values after join()."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

import numpy as np

from ...causes import Cause
from ...causes import replicas as causes
from ...contract import Capabilities
from ...job import Job, Join
from ...oracle import Oracle
from ...seeded_values import Array
from ...trace import Trace


@dataclass(frozen=True)
class AfterJoin:
    """A Job that begins with join(), after which parameters or later values are wrong."""

    job: Job
    trace: Trace
    promised: Capabilities

    @cached_property
    def got(self) -> list[Mapping[str, Array]]:
        return self.trace.values(1, "parameters")

    @cached_property
    def right(self) -> Mapping[str, Array]:
        return _after_join(self.job, self.promised)

    def equals(self, expected: Mapping[str, Array]) -> bool:
        """Whether rank 0 has these parameters, which are not the right ones."""
        return _near(self.got[0], expected) and not _near(self.right, expected)


def join_ends_at_rank(of: AfterJoin) -> Cause | None:
    """After the first wrong join() all ranks have the parameters of a rank that had used its last batch earlier."""
    for place, join in enumerate(of.job.operations[:-1]):
        if not isinstance(join, Join):
            continue
        got = of.trace.values(place + 1, "parameters")
        right = _parameters(of.job, of.promised, place + 1)
        if all(_near(rank, right) for rank in got):
            continue
        for rank, own in enumerate(join.batches):
            cut = Join(tuple(batches[: len(own)] for batches in join.batches))
            shorter = replace(of.job, operations=(*of.job.operations[:place], cut, *of.job.operations[place + 1 :]))
            held = _parameters(shorter, of.promised, place + 1) if own and len(own) < join.rounds() else right
            if all(_near(each, held) for each in got) and not _near(right, held):
                return causes.JOIN_ENDS_AT_RANK(rank=rank)
        return None
    return None


def join_leaves_state(of: AfterJoin) -> Cause | None:
    """Parameters after join() are right, and later values are not."""
    return causes.JOIN_LEAVES_STATE() if all(_near(rank, of.right) for rank in of.got) else None


def join_wrong_divisor(of: AfterJoin) -> Cause | None:
    """Gradients are divided by the other number of ranks."""
    other, said = "divide_by_live_ranks", "the number of ranks that still have batches"
    if of.promised.replica.join == "divide_by_live_ranks":
        other, said = "divide_by_initial_world", "the world size"
    wrong = of.equals(_after_join(of.job, of.promised.but(join=other)))
    return causes.JOIN_WRONG_DIVISOR(divisor=said) if wrong else None


def join_stale(of: AfterJoin) -> Cause | None:
    """Ranks that have no more batches send the gradients of their last one."""
    join, *rest = of.job.operations
    assert isinstance(join, Join)
    again = tuple((*batches, *batches[-1:] * (join.rounds() - len(batches))) for batches in join.batches)
    stale = replace(of.job, operations=(Join(again), *rest))
    stays = of.equals(_after_join(stale, of.promised.but(join="divide_by_initial_world")))
    return causes.JOIN_STALE() if stays else None


def join_steps_missing(of: AfterJoin) -> Cause | None:
    """Ranks end join() with different parameters."""
    apart = any(not np.array_equal(of.got[0][name], rank[name]) for rank in of.got for name in rank)
    return causes.JOIN_STEPS_MISSING() if apart else None


def _after_join(job: Job, promised: Capabilities) -> dict[str, Array]:
    """The expected values of rank 0 after join()."""
    return _parameters(job, promised, 1)


def _parameters(job: Job, promised: Capabilities, position: int) -> dict[str, Array]:
    """The expected values of rank 0 at this position."""
    moments = islice(Oracle(job, promised).walk(), position + 1)
    *_, entries = (moment.arrays["parameters"] for moment in moments if moment.arrays)
    return {name: entry.value.exact[0] for name, entry in entries.items()}


def _near(got: Mapping[str, Array], expected: Mapping[str, Array]) -> bool:
    return all(np.allclose(got[name], array, rtol=1e-4, atol=1e-6) for name, array in expected.items())
