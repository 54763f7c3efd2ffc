"""The other ranks after one rank fails: none continues normally, and none waits for ever."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ddpcheck.causes import lifecycle as causes
from ddpcheck.checks import law
from ddpcheck.contract import CallForm, needs
from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.lifecycle import Unaware
from ddpcheck.hypotheses.ordered_hypotheses.ranks import OF_AN_UNAWARE_RANK
from ddpcheck.job import (
    AllGather,
    AllReduce,
    Barrier,
    Broadcast,
    Job,
    Kill,
    Leave,
    Operation,
    ReduceScatter,
    SendRecv,
    Sleep,
    TensorSpec,
    Wait,
)
from ddpcheck.trace import RankTrace, Record, Trace
from ddpcheck.verdict import CannotTell, Diagnosis, Finding

from ..drawing import for_each
from ..strategies_collectives import dtypes, reductions
from .rank_findings import finding_about, place_of, process_still_there

if TYPE_CHECKING:
    from ddpcheck.session import Session

LATE = 0.05
"""Seconds by which a rank is later than the others."""
LARGE = 20_000
"""Elements of an array that may use another path than a small one."""
FAILS_AT = 1
"""Position of the failure in a Job of _with_failure, unless an asynchronous call comes before it."""


@law("failures", needs.collectives.operations("all_reduce"), needs.ranks(2))
def check_collectives_never_complete_with_a_dead_rank(session: Session) -> None:
    """No rank completes a collective that a dead rank never entered: it raises an error or is still waiting."""
    last = session.world_size - 1
    kinds = [each for each in _operations_with(session, last) if each[0].kind not in ("send_recv", "broadcast")]
    # a different one at each world size, since each costs new ranks
    chosen = kinds[(session.world_size - 2) % len(kinds)]
    for_each(session, [_with_failure(session, Kill(last), chosen)], _none_completes)


@law("failures", needs.collectives.operations("all_reduce"), needs.world.detects_dead_peer, needs.ranks(2))
def check_dead_rank_raises_on_every_other_rank(session: Session) -> None:
    """When any rank dies, every other rank raises an error within the grace time. This holds in every collective, for ranks
    that already wait in it and for ranks that enter it after the death.
    """
    world = session.world_size
    jobs = []
    for rank in range(1, world):
        kinds = _operations_with(session, rank)
        jobs.append(
            _with_failure(session, Kill(rank), kinds[-(world * (world - 1) // 2 - world + 1 + rank) % len(kinds)])
        )
    reduced = _reductions_with_rank_0(session)
    jobs.append(_with_failure(session, Kill(0), (Sleep(1, LATE), *reduced[(world - 2) % len(reduced)])))
    for_each(session, jobs, partial(_raised_everywhere, session))


@law("failures", needs.collectives.operations("all_reduce"), needs.world.detects_failed_peer, needs.ranks(2))
def check_failed_rank_raises_on_every_other_rank(session: Session) -> None:
    """When a rank's program ends with an exception, whether or not it called close() first, its process ends and every other
    rank raises. Earlier asynchronous calls, which may have started a thread, make no difference.
    """
    left, closed = (_with_failure(session, each) for each in (Leave(session.world_size - 1), Leave(0, close=True)))
    if session.capabilities.has(CallForm.ASYNCHRONOUS):
        first, *rest = left.operations
        assert isinstance(first, AllReduce)
        left = replace(left, operations=(replace(first, wait=False), Wait(0), *rest))
    for_each(session, [left, closed], partial(_raised_everywhere, session))


def _operations_with(session: Session, dead: int) -> list[tuple[Operation, ...]]:
    """Operations that need the dead rank: all promised collectives, asynchronous ones, and messages to other ranks."""
    world, promised = session.world_size, session.capabilities
    tensor = TensorSpec((2 * world,), dtypes(promised)[0], "powers", 1)
    reduced = AllReduce(tensor, reductions(promised)[0])
    found: list[tuple[Operation, ...]] = [(reduced,), (Barrier(),), (AllGather(tensor),)]
    found += [(ReduceScatter(tensor, reduced.reduction),), (Broadcast(tensor, dead),)]
    found.append((SendRecv(tensor, tuple((dead, rank) for rank in range(world) if rank != dead)),))
    offered = [each for each in found if each[0].kind in promised.collectives.operations]
    if promised.has(CallForm.ASYNCHRONOUS):
        offered.append((replace(reduced, wait=False), Wait(FAILS_AT + 1)))
    return offered


def _reductions_with_rank_0(session: Session) -> list[tuple[Operation, ...]]:
    """All-reduces that need rank 0: a small one, a large one, and one of a group before one of all ranks."""
    world, promised = session.world_size, session.capabilities
    dtype, reduction = dtypes(promised)[0], reductions(promised)[0]
    small, large = (AllReduce(TensorSpec((size,), dtype, "powers", 1), reduction) for size in (5, LARGE))
    of_a_group = [(replace(small, group=(0, world - 1)), small)] if promised.has(CallForm.SUBGROUPS) else []
    return [(small,), *of_a_group, (large,)]


def _with_failure(session: Session, failure: Operation, then: tuple[Operation, ...] = ()) -> Job:
    """A collective that works, the failure, and more collectives."""
    promised = session.capabilities
    made = [
        AllReduce(TensorSpec((5,), dtypes(promised)[0], "powers", seed), reductions(promised)[0]) for seed in range(3)
    ]
    return Job(session.world_size, (made[0], failure, *(then or made[1:])))


def _none_completes(job: Job, trace: Trace) -> None:
    dead = _dead(job)
    for rank in trace.ranks:
        through = [record for record in rank.records if record.left is not None and _needs_the_dead(job, rank, record)]
        started = isinstance(job.operations[-1], Wait)  # a rank that only starts the call need not notice the failure
        if rank.rank != dead and len(through) > started:
            raise Finding(
                Diagnosis(
                    f"rank {rank.rank} completed {place_of(through[-1])} without rank {dead}, which was gone; it should have "
                    "raised an error or still wait",
                    (causes.ERROR_SWALLOWED(operation=through[-1].kind),),
                    details=("the result is the array that this rank put in",) * _is_own(job, rank, through[-1]),
                )
            )


def _is_own(job: Job, rank: RankTrace, record: Record) -> bool:
    """Whether an all-reduce returned this rank's own argument."""
    operation, result = job.operations[record.operation], record.values.get("result")
    if not isinstance(operation, AllReduce) or result is None:
        return False
    own = operation.tensor.on(rank.rank)
    return bool(np.array_equal(result, own) and own.any())


def _needs_the_dead(job: Job, rank: RankTrace, record: Record) -> bool:
    operation = job.operations[record.operation]
    group = getattr(operation, "group", None)
    called = not isinstance(operation, Sleep) and (group is None or rank.rank in group)
    return called and record.operation > _position_of_failure(job)


def _raised_everywhere(session: Session, job: Job, trace: Trace) -> None:
    _none_completes(job, trace)
    dead, failure = _dead(job), job.operations[_position_of_failure(job)]
    if session.ends_ranks_together and any(rank.outcome == "died" for rank in trace.ranks if rank.rank != dead):
        raise CannotTell("the launcher ended the other ranks before they could raise an error")
    if trace.ranks[dead].outcome == "hung":
        raise _not_ended(trace.ranks[dead], failure)
    ended = "had died" if isinstance(failure, Kill) else "had ended by an exception"
    for rank in trace.ranks:
        if rank.rank != dead and rank.outcome != "raised":
            did = "was still waiting" if rank.outcome == "hung" else rank.outcome
            raise finding_about(
                rank,
                f"rank {rank.rank} {did} in {place_of(rank.last)} after rank {dead} {ended}, but should have raised an error",
                *first_cause(OF_AN_UNAWARE_RANK, Unaware(job, trace, rank, dead)),
            )


def _not_ended(rank: RankTrace, failure: Operation) -> Finding:
    if isinstance(failure, Leave):
        return process_still_there(rank, f"by an exception in {place_of(rank.last)}")
    headline = f"rank {rank.rank} was killed, but its connections are still open"
    return Finding(Diagnosis(headline, (causes.CHILD_HOLDS_CONNECTIONS(),)), hung=True)


def _position_of_failure(job: Job) -> int:
    return next(place for place, each in enumerate(job.operations) if isinstance(each, (Kill, Leave)))


def _dead(job: Job) -> int:
    failure = job.operations[_position_of_failure(job)]
    assert isinstance(failure, (Kill, Leave))
    return failure.rank
