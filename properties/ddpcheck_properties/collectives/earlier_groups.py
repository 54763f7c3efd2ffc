"""A cause that only calls in groups before a call of all ranks show: the group stays in use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpcheck.causes import Cause
from ddpcheck.causes import collectives as causes
from ddpcheck.contract import CallForm
from ddpcheck.job import (
    AllGather,
    AllReduce,
    Barrier,
    Broadcast,
    Job,
    Operation,
    ReduceScatter,
    SendRecv,
    Sleep,
    Wait,
)
from ddpcheck.verdict import Finding

from ..judges import finding_on
from ..strategies_collectives import dtypes, exact_tensor, usual_reduction
from .comparison import results_hold

if TYPE_CHECKING:
    from ddpcheck.session import Session

_COLLECTIVE = (AllGather, AllReduce, Barrier, Broadcast, ReduceScatter, SendRecv, Sleep, Wait)
_LATE = 0.1
"""Seconds of a rank for which a barrier must wait."""


def with_earlier_group(session: Session, finding: Finding) -> Finding:
    """The finding. If a barrier does not block, the group of an earlier call may be the cause."""
    cause = finding.diagnosis.cause
    kept = _group_kept(session) if cause is not None and cause.id in _FOLLOWS else None
    return finding.blaming(kept, finding.diagnosis.causes) if kept is not None else finding


_FOLLOWS = frozenset(each.id for each in (causes.BARRIER_DOES_NOT_BLOCK, causes.BARRIER_WAITS_FOR_SOME))
"""Causes that an earlier group explains better."""


def group_kept_before(session: Session, job: Job) -> Cause | None:
    """The cause of a Job that failed once and passed when run again, if it has collectives only."""
    alone = all(isinstance(operation, _COLLECTIVE) for operation in job.operations)
    return _group_kept(session) if alone else None


def _group_kept(session: Session) -> Cause | None:
    """The cause, if a call of all ranks is right after calls in a group of all, and wrong after calls in rank 0 alone and in
    the other ranks.
    """
    promised, world = session.capabilities.collectives, session.world_size
    if world < 2 or not promised.offered or not session.capabilities.has(CallForm.SUBGROUPS):
        return None
    together = _in_group(session, tuple(range(world)))
    apart = (*_in_group(session, (0,)), *_in_group(session, tuple(range(1, world))))
    for kind, call in _of_all_ranks(session):
        if apart and not _fails(session, (*together, *call)) and _fails(session, (*apart, *call)):
            return causes.GROUP_KEPT(call=kind)
    return None


def _fails(session: Session, operations: tuple[Operation, ...]) -> bool:
    return finding_on(session, Job(session.world_size, operations), results_hold) is not None


def _of_all_ranks(session: Session) -> Iterator[tuple[str, tuple[Operation, ...]]]:
    """Calls of all ranks, by kind."""
    promised, world = session.capabilities, session.world_size
    dtype = dtypes(promised)[0]
    made: dict[str, tuple[Operation, ...]] = {"barrier": (Sleep(world - 1, _LATE), Barrier())}
    if {"all_reduce", "reduce_scatter"} & promised.collectives.operations:
        reduction = usual_reduction(promised, dtype)
        made["all_reduce"] = (AllReduce(exact_tensor((3,), dtype, reduction, world, 5), reduction),)
        made["reduce_scatter"] = (ReduceScatter(exact_tensor((2 * world,), dtype, reduction, world, 6), reduction),)
    tensor = exact_tensor((3,), dtype, "sum", world, 7)
    made |= {"all_gather": (AllGather(tensor),), "broadcast": (Broadcast(tensor, world - 1),)}
    yield from ((kind, call) for kind, call in made.items() if kind in promised.collectives.operations)


def _in_group(session: Session, group: tuple[int, ...]) -> tuple[Operation, ...]:
    """A call of each kind in this group."""
    offered, dtype = session.capabilities.collectives.operations, dtypes(session.capabilities)[0]
    made: tuple[Operation, ...] = ()
    tensor = exact_tensor((3,), dtype, "sum", len(group), 8)
    if "all_gather" in offered:
        made += (AllGather(tensor, group),)
    if "broadcast" in offered:
        made += (Broadcast(tensor, group[0], group),)
    if "all_reduce" in offered:
        reduction = usual_reduction(session.capabilities, dtype)
        made += (AllReduce(exact_tensor((3,), dtype, reduction, len(group), 9), reduction, group),)
    return made
