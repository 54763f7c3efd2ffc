"""Timelines of the last backward: when it computed, and when each bucket was reduced. Only the order is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpcheck import assertions
from ddpcheck.causes import replicas as causes
from ddpcheck.checks import law
from ddpcheck.contract import needs
from ddpcheck.job import DataSpec, Job, MeasureSteps
from ddpcheck.models.spec import mlp
from ddpcheck.trace import Trace

from ..drawing import for_each
from ..explicit_examples import fitting
from ..strategies import shards

if TYPE_CHECKING:
    from ddpcheck.session import Session


@law("buckets", needs.replica, needs.replica.timeline, needs.replica.no_sync)
def check_timeline_describes_the_last_backward(session: Session) -> None:
    """A timeline has one "backward" and, if the backward was synchronised, "all_reduce 0", "all_reduce 1" and so on. Each
    entry lies within the last step, and entries are ordered by start time.
    """
    world = session.world_size
    rows = shards([2] * world)
    steps = [MeasureSteps(rows, synced=synced, warmups=1, iterations=2) for synced in (True, False)]
    job = Job(world, tuple(steps), mlp((2, 3, 2)), data=DataSpec(2 * world, "lattice", 1))
    for_each(session, fitting(session, [job]), _of_the_last_step)


def _of_the_last_step(job: Job, trace: Trace) -> None:
    assertions.completed(trace)
    for position, operation in enumerate(job.operations):
        assert isinstance(operation, MeasureSteps)
        for rank, seen in enumerate(trace.ranks):
            values = seen.values(position)
            spans = [(str(name), float(begin), float(end)) for name, begin, end in values["timeline"] or ()]
            names = [name for name, _, _ in spans]
            what = (
                f"timeline of a {'synchronised' if operation.synced else 'local'} backward on rank {rank}: got {names}"
            )
            reduced = sorted(name for name in names if name != "backward")
            assertions.that(names.count("backward") == 1, f"{what}, but should have one backward")
            if job.world_size > 1:
                assertions.that(
                    bool(reduced) == operation.synced, f"{what}, but should have an all_reduce if it is synchronised"
                )
            numbered = sorted(f"all_reduce {number}" for number in range(len(reduced)))
            assertions.that(reduced == numbered, f"{what}, but all others should be {numbered}")
            begins = [begin for _, begin, _ in spans]
            assertions.that(begins == sorted(begins), f"{what}, which do not begin in this order")
            first, last = values["begin"][-1], values["backward_end"][-1]
            inside = all(first <= begin <= end <= last for _, begin, end in spans)
            cause = causes.TIMELINE_OF_OTHER()
            assertions.that(inside, f"{what}, which are not all within the last step", cause)
