"""close() ends on every rank, loses no sent message, and releases all resources."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddpcheck import assertions
from ddpcheck.causes import lifecycle as causes
from ddpcheck.checks import law
from ddpcheck.contract import CallForm, needs
from ddpcheck.hypotheses.lifecycle import sent_data_lost_by_close
from ddpcheck.job import (
    AllGather,
    AllReduce,
    Barrier,
    Broadcast,
    Close,
    Job,
    Leave,
    Left,
    Operation,
    ReduceScatter,
    SendRecv,
    Sleep,
    Start,
    TensorSpec,
    Wait,
)
from ddpcheck.trace import Trace
from ddpcheck.verdict import CannotTell, Finding

from ..drawing import for_each
from ..strategies_collectives import dtypes, reductions
from .failing_ranks import LARGE, LATE
from .rank_findings import process_still_there

if TYPE_CHECKING:
    from ddpcheck.session import Session


@law("failures", needs.collectives.operations("all_reduce"), needs.ranks(2, most=2))
def check_close_returns_on_every_rank(session: Session) -> None:
    """close() returns on every rank without an error, even when ranks call it at different times. Messages sent before still
    arrive, and processes end when their programs end.
    """
    world, promised = session.world_size, session.capabilities
    tensor = TensorSpec((5,), dtypes(promised)[0], seed=1)
    # rank 0 closes while rank 1 still sleeps, and need not wait for it
    last = [
        each
        for each in (Broadcast(tensor), SendRecv(tensor, ((0, 1),)))
        if each.kind in promised.collectives.operations
    ]
    leaving = tuple(map(Leave, range(world)))
    try:
        for_each(
            session, [Job(world, (*_one_of_each(session), Sleep(1, LATE), *last, Close(), *leaving))], _closed_and_ended
        )
    finally:
        session.close(orderly=False)  # the ranks have been closed


@law("failures", needs.collectives.operations("all_reduce"), needs.world.gives_back, needs.ranks(2, most=2))
def check_close_releases_process_resources(session: Session) -> None:
    """After close(), a process has no more sockets, pipes, threads and child processes than before connect(), so it can
    train repeatedly. Memory may stay allocated for arrays in use.
    """
    try:
        for_each(session, [Job(session.world_size, (*_one_of_each(session), Close()))], _resources_released)
    finally:
        session.close(orderly=False)  # the ranks have been closed


@law("failures", needs.collectives.operations("all_reduce"), needs.world.gives_back, needs.ranks(2, most=2))
def check_close_leaves_no_files_or_shared_memory(session: Session) -> None:
    """After all ranks have closed, the temporary folder holds no file that was not there before connect(), and no named
    shared memory remains.
    """
    operations = (*_one_of_each(session), Close(), Left())
    try:
        for_each(session, [Job(session.world_size, operations, start=Start(own_folder=True))], _nothing_left)
    finally:
        session.close(orderly=False)  # the ranks have been closed


def _one_of_each(session: Session) -> list[Operation]:
    """Each promised way to communicate, because each may have its own threads and connections."""
    world, promised = session.world_size, session.capabilities
    tensor = TensorSpec((2 * world,), dtypes(promised)[0], "powers")
    reduced = AllReduce(tensor, reductions(promised)[0])
    made: list[Operation] = [replace(reduced, wait=False), Wait(0)] if promised.has(CallForm.ASYNCHRONOUS) else []
    made += [reduced, replace(reduced, tensor=replace(tensor, shape=(LARGE,)))]
    if promised.has(CallForm.SUBGROUPS):
        made += [replace(reduced, group=group) for group in ((world - 1,), (0, world - 1))]
    pairs = ((0, world - 1), (world - 1, 0))
    others = (Barrier(), Broadcast(tensor), AllGather(tensor), ReduceScatter(tensor, reduced.reduction))
    return made + [each for each in (*others, SendRecv(tensor, pairs)) if each.kind in promised.collectives.operations]


def _resources_released(job: Job, trace: Trace) -> None:
    assertions.completed(trace)
    for rank in trace.ranks:
        before, after = (rank.values(len(job.operations) - 1)[name] for name in ("before", "held"))
        for name, number in before.items():  # empty if the system does not report them
            left = after[name] - number
            assertions.that(
                left <= 0,
                f"rank {rank.rank}: got {left} more {name} after close() than before connect(), but should have released all",
                causes.LEFT_OPEN(number=left, resource=name),
            )


def _nothing_left(job: Job, trace: Trace) -> None:
    assertions.completed(trace)
    for rank in trace.ranks:
        for what, kind in _KINDS_LEFT.items():
            names = rank.values(len(job.operations) - 1)[what]
            if names is None:
                raise CannotTell(
                    "the ranks are not on one host, or closed at very different times: no rank could list the remains of all"
                )
            assertions.that(
                not names,
                f"rank {rank.rank}: got {', '.join(names[:3])}{' and others' * (len(names) > 3)} after all ranks closed, but "
                "should find nothing that was made since connect()",
                kind(),
            )


_KINDS_LEFT = {"files": causes.FILES_LEFT, "memory": causes.NAMED_MEMORY_LEFT}
"""The kinds of resources left behind, and their causes."""


def _closed_and_ended(job: Job, trace: Trace) -> None:
    """Ignores a process that dies after close(), because the engine is closed; Gloo's threads may abort then."""
    closing = next(at for at, op in enumerate(job.operations) if isinstance(op, Close))
    for rank in trace.ranks:
        if rank.elsewhere:
            raise CannotTell(
                f"rank {rank.rank} is on another host: the driver cannot see in which operation it has ended"
            )
        reached = -1 if rank.last is None else rank.last.operation
        if reached > closing and rank.outcome == "hung":
            raise process_still_there(rank, "after close()")
        if reached < closing or (reached == closing and rank.outcome != "died"):
            try:
                assertions.completed(replace(trace, ranks=(rank,)))
            except Finding as finding:
                raise finding.blaming(sent_data_lost_by_close(job, rank), finding.diagnosis.causes) from None
