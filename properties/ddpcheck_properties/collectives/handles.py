"""Handles of pending all-reduces: one waits for a late rank, or is waited for last."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddpcheck.causes import collectives as causes
from ddpcheck.causes.cause import Given
from ddpcheck.checks import law
from ddpcheck.contract import CallForm, needs
from ddpcheck.hypotheses.collectives.circumstances import FailedJob, handle_forgotten
from ddpcheck.job import AllReduce, Job, Operation, Sleep, Wait
from ddpcheck.trace import Trace
from ddpcheck.verdict import Diagnosis, Finding

from ..drawing import for_each, runs_all_jobs
from ..judges import with_causes
from ..strategies_collectives import exact_tensor
from .call_forms import CALLS, usual
from .comparison import results_hold
from .names import named
from .transfers import LATE, VERY_LATE

if TYPE_CHECKING:
    from ddpcheck.session import Session

LATENESS = (LATE, 0.3, VERY_LATE)
"""Seconds, tried in turn, because the system may keep a rank off the processor for a while."""
_SECONDS = 5.0
"""A time limit in seconds for the calls of one Job."""
_FEW = 3


@law("collectives", needs.collectives.operations("all_reduce"), needs.collectives.asynchronous, needs.ranks(2))
def check_wait_returns_after_every_rank_has_contributed(session: Session) -> None:
    """wait() returns only after every rank's values have arrived, whichever rank starts late and whichever handle is waited
    for first.
    """
    world = session.world_size
    started = [_begun(session, seed, 20_000) for seed in range(5, 8)]
    drawn = []
    for rank in range(world):
        drawn.append(Job(world, (Sleep(rank, LATE), started[0], Wait(1))))
        drawn.append(Job(world, (Sleep(rank, LATE), *started, Wait(3), Wait(2), Wait(1))))
    if world == 2:  # only once, because it takes long
        drawn.append(Job(world, (Sleep(1, VERY_LATE), started[0], Wait(1))))
    for_each(session, drawn, results_hold)


@law("collectives", needs.collectives.operations("all_reduce"), needs.collectives.asynchronous, needs.ranks(2))
def check_asynchronous_all_reduce_returns_immediately(session: Session) -> None:
    """An asynchronous all-reduce returns before the other ranks have started it, whichever rank is late. This holds for
    small and large arrays, in a group, and while others are pending.
    """
    for late in LATENESS:
        try:
            for_each(session, [_begun_before(session, late)], _at_once)
        except _CameBackLate:
            if late == LATENESS[-1]:
                raise
        else:
            return


class _CameBackLate(Finding):
    """A call waited for the late rank, or this rank was off the processor for as long."""


def _begun_before(session: Session, late: float) -> Job:
    """Three pending at once, and three in a group with a late rank; the group's resources exist already."""
    world = session.world_size
    rank = 0 if world % 2 else world - 1
    begun = [_begun(session, 3, 5), _begun(session, 4, 7), _begun(session, 5, 100_000)]
    if session.capabilities.has(CallForm.SUBGROUPS):
        begun += [replace(one, group=tuple(range(world))) for one in begun]
    known = [
        replace(begun[0], wait=True),
        *[replace(begun[-1], wait=True)] * session.capabilities.has(CallForm.SUBGROUPS),
    ]
    waits = (Wait(len(known) + 1 + number) for number in range(len(begun)))
    return Job(world, (*known, Sleep(rank, late), *begun, *waits))


def _at_once(job: Job, trace: Trace) -> None:
    """A judge: results_hold, and every call returned before the late rank had started."""
    results_hold(job, trace)
    (late,) = (each for each in job.operations if isinstance(each, Sleep))
    for position, operation in enumerate(job.operations):
        if not isinstance(operation, AllReduce) or operation.wait:
            continue
        begun = [next(each for each in rank.records if each.operation == position) for rank in trace.ranks]
        came = begun[late.rank].entered
        for rank, own in enumerate(begun):
            if own.left is not None and own.entered < came < own.left:
                waited = 1000 * (own.left - own.entered)
                raise _CameBackLate(
                    Diagnosis(
                        f"{named(operation, position)}: rank {rank} came back after {waited:.0f} ms, when rank {late.rank}, "
                        f"which was {late.seconds:g} s late, had begun it, too, but should have come back at once",
                        (causes.ASYNCHRONOUS_CALL_WAITS(),),
                    )
                )


@law("collectives", needs.collectives.operations("all_reduce"), needs.collectives.asynchronous)
def check_oldest_handle_keeps_its_result(session: Session) -> None:
    """An all-reduce that is waited for last gives its own result, even if more others came in between than a byte can count.

    Slow implementations get fewer calls in between; so do more than three ranks in short profiles.
    """
    took: list[float] = []

    def timed(job: Job, trace: Trace) -> None:
        judge(job, trace)
        took.append(max(record.left or 0.0 for record in trace.ranks[0].records) - trace.ranks[0].records[0].entered)

    judge = with_causes(results_hold, _explain)
    for_each(session, [_one_late(session, _FEW)], timed)
    if not runs_all_jobs(session):
        return
    affordable = int(_SECONDS / max([*took, 1e-6]) * _FEW)
    for_each(session, [_one_late(session, min(CALLS, affordable))], judge)


def _one_late(session: Session, others: int) -> Job:
    """The first handle is waited for after all others; one of the others has another size."""
    made: list[Operation] = [_begun(session, 9, 5)]
    for number in range(others):
        made += [_begun(session, number % 3, 5 + (number == 1)), Wait(len(made))]
    return Job(session.world_size, (*made, Wait(0)))


def _begun(session: Session, seed: int, size: int) -> AllReduce:
    world = session.world_size
    dtype, reduction = usual(session.capabilities)
    return AllReduce(exact_tensor((size,), dtype, reduction, world, seed), reduction, wait=False)


def _explain(job: Job, trace: Trace, finding: Finding) -> Given:
    """The last operation may be wrong because of the number of handles in between."""
    of = FailedJob(job, trace, finding.diagnosis.causes, finding.diagnosis.operation)
    return handle_forgotten(of), of.sure
