"""Handles of all-reduces under way: one that waits late, for a rank or for its turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpcheck.checks import law
from ddpcheck.job import AllReduce, Job, Operation, Sleep, Wait
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from ..drawing import Judge, for_each
from ..strategies_collectives import exact_tensor
from .judges import results_hold
from .transfers import LATE, VERY_LATE
from .ways import CALLS, usual

if TYPE_CHECKING:
    from ddpcheck.session import Session

_SECONDS = 5.0
"""What the calls of one Job may take."""
_FEW = 3


@law("collectives", "collective:all_reduce", "asynchronous", "world_size>=2")
def check_wait_gives_the_result_of_all_ranks_though_one_is_late(session: Session) -> None:
    """wait() returns only once every rank's values are in, whichever rank starts late, and whichever of several handles is the
    first to wait.
    """
    world = session.world_size
    started = [_begun(session, seed, 20_000) for seed in range(5, 8)]
    drawn = []
    for rank in range(world):
        drawn.append(Job(world, (Sleep(rank, LATE), started[0], Wait(1))))
        drawn.append(Job(world, (Sleep(rank, LATE), *started, Wait(3), Wait(2), Wait(1))))
    if world == 2:  # once: it takes its time
        drawn.append(Job(world, (Sleep(1, VERY_LATE), started[0], Wait(1))))
    for_each(session, drawn, results_hold)


@law("collectives", "collective:all_reduce", "asynchronous")
def check_one_handle_can_wait_while_others_come_and_go(session: Session) -> None:
    """An all-reduce that is waited for last gives its own result, however many were begun and waited for since: more than a byte
    counts.

    Who would take longer than some seconds for so many does fewer.
    """
    took: list[float] = []

    def timed(job: Job, trace: Trace) -> None:
        judge(job, trace)
        took.append(max(record.left or 0.0 for record in trace.ranks[0].records) - trace.ranks[0].records[0].entered)

    judge = _saying_so(results_hold)
    for_each(session, [_one_late(session, _FEW)], timed)
    affordable = int(_SECONDS / max([*took, 1e-6]) * _FEW)
    for_each(session, [_one_late(session, min(CALLS, affordable))], judge)


def _one_late(session: Session, others: int) -> Job:
    """The first handle waits after all others; one of them of another size."""
    made: list[Operation] = [_begun(session, 9, 5)]
    for number in range(others):
        made += [_begun(session, number % 3, 5 + (number == 1)), Wait(len(made))]
    return Job(session.world_size, (*made, Wait(0)))


def _begun(session: Session, seed: int, size: int) -> AllReduce:
    world = session.world_size
    dtype, reduction = usual(session.capabilities)
    return AllReduce(exact_tensor((size,), dtype, reduction, world, seed), reduction, wait=False)


def _saying_so(judge: Judge) -> Judge:
    """The judge, whose findings on the last operation also tell how many handles have come and gone."""

    def told(job: Job, trace: Trace) -> None:
        try:
            judge(job, trace)
        except Finding as finding:
            if not finding.diagnosis.headline.startswith(f"operation {len(job.operations) - 1}, "):
                raise
            others = (len(job.operations) - 2) // 2
            late = (
                f"what waits is forgotten: {others} others came and went since, more than a number, ring or cache holds"
            )
            raise finding.blaming(late, finding.diagnosis.cause) from None

    return told
