"""Calls after a rank has noticed a dead rank: no later call completes, and close() returns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ddpcheck.causes import lifecycle as causes
from ddpcheck.causes.cause import as_causes
from ddpcheck.checks import law
from ddpcheck.contract import CallForm, Capabilities, needs
from ddpcheck.hypotheses.lifecycle import failure_forgotten
from ddpcheck.job import (
    Aggregate,
    AllGather,
    AllReduce,
    Attempt,
    Backward,
    Barrier,
    Broadcast,
    Close,
    Job,
    Kill,
    Operation,
    ReduceScatter,
    Score,
    SendRecv,
    TensorSpec,
    Wait,
    ZeroGrad,
)
from ddpcheck.models.spec import mlp
from ddpcheck.trace import RankTrace, Trace
from ddpcheck.verdict import Diagnosis, Finding

from ..collectives.names import in_group
from ..drawing import for_each, has_time_for_long_jobs
from ..explicit_examples import fitting
from ..replicas.large_models import several_buckets
from ..strategies import shards, training_job
from ..strategies_collectives import dtypes, reductions
from .failing_ranks import LARGE
from .rank_findings import finding_about

if TYPE_CHECKING:
    from ddpcheck.session import Session


@law("failures", needs.collectives.operations("all_reduce"), needs.world.detects_dead_peer, needs.ranks(2))
def check_later_calls_never_complete_with_a_dead_rank(session: Session) -> None:
    """After a rank has noticed a dead rank, no later call that needs the dead rank completes. Each such call raises an error
    or is still waiting, whether small, large, in a group or asynchronous.
    """
    calls = list(_needing_the_last(session))
    # each kind of call is the first after the death in one Job
    firsts = range(len(calls)) if has_time_for_long_jobs(session) else [2 * session.world_size % len(calls)]
    before = _together_before(session)
    jobs = []
    for first in firsts:
        operations: list[Operation] = [*before, Kill(session.world_size - 1)]
        for call in (*calls[first:], *calls[:first]):
            if isinstance(call, AllReduce) and not call.wait:
                operations += [Attempt(call), Attempt(Wait(len(operations)))]
            else:
                operations.append(Attempt(call))
        jobs.append(Job(session.world_size, tuple(operations)))
    for_each(session, jobs, no_call_completes)


@law("failures", needs.replica, needs.world.detects_dead_peer, needs.ranks(2, most=2))
def check_backward_never_completes_with_a_dead_rank(session: Session) -> None:
    """No rank completes a synchronised backward that a dead rank never entered, with one bucket or several. No rank gets
    metrics or scores that lack the dead rank's samples. Each such call raises an error or is still waiting.
    """
    world, promised = session.world_size, session.capabilities
    samples = shards([2] * world)
    alone: list[Operation] = [Attempt(Backward(samples))]
    if "metrics" in promised.facets:
        alone.append(Attempt(Aggregate(tuple(range(1, world + 1)), (2,) * world)))
    if "scores" in promised.facets and (scores := promised.scores.score_names - {"auc"}):  # AUC needs two classes
        alone.append(Attempt(Score(min(scores), samples)))
    small, large = mlp((2, 3, 2)), several_buckets()
    together: list[Operation] = [ZeroGrad(), Backward(samples)]
    jobs = [
        training_job(world, small, [*together, Kill(world - 1), *alone]),
        # the third backward: an implementation that alternates between two paths uses the first one again
        training_job(world, large, [*together, *together, Kill(world - 1), alone[0]]),
    ]
    for_each(session, fitting(session, jobs), no_call_completes)


@law(
    "failures",
    needs.collectives.operations("all_reduce"),
    needs.world.detects_dead_peer,
    needs.ranks(2, most=3),
)
def check_close_returns_despite_a_dead_rank(session: Session) -> None:
    """After an all-reduce failed because of a dead rank, close() returns on every other rank. It waits neither for the dead
    rank nor for the others to continue the failed call.
    """
    reduced = _reduced(session.capabilities, 5)
    operations = (reduced, Kill(session.world_size - 1), Attempt(reduced), Close())
    try:
        for_each(session, [Job(session.world_size, operations)], _closed)
    finally:
        session.close(orderly=False)  # the ranks have been closed


def _reduced(promised: Capabilities, size: int, group: tuple[int, ...] | None = None) -> AllReduce:
    return AllReduce(TensorSpec((size,), dtypes(promised)[0], "powers", 1), reductions(promised)[0], group)


def _group(session: Session) -> tuple[int, ...]:
    return (0, session.world_size - 1)


def _together_before(session: Session) -> list[Operation]:
    """Calls of all ranks while all live, because a group that starts without a member is another case."""
    promised = session.capabilities
    found: list[Operation] = [_reduced(promised, 5)]
    if promised.has(CallForm.SUBGROUPS):
        found.append(_reduced(promised, 5, _group(session)))
    return found


def _needing_the_last(session: Session) -> Iterator[Operation]:
    """Each promised call that needs the last rank, small and large."""
    world, promised = session.world_size, session.capabilities
    last, dtype = world - 1, dtypes(promised)[0]
    for group in (None, _group(session)) if promised.has(CallForm.SUBGROUPS) else (None,):
        members = len(group or range(world))
        calls: list[Operation] = [Barrier(group)]
        for size in (2 * members, LARGE * members):
            tensor = TensorSpec((size,), dtype, "powers", 1)
            reduced = AllReduce(tensor, reductions(promised)[0], group)
            calls += [reduced, AllGather(tensor, group), ReduceScatter(tensor, reduced.reduction, group)]
            calls += [Broadcast(tensor, last, group)]
            calls += [SendRecv(tensor, ((last, 0),))] * (group is None)
        yield from (call for call in calls if call.kind in promised.collectives.operations)
    if promised.has(CallForm.ASYNCHRONOUS):
        yield AllReduce(TensorSpec((LARGE,), dtype, "powers", 1), reductions(promised)[0], wait=False)


def no_call_completes(job: Job, trace: Trace) -> None:
    """The judge of a Job with a Kill, after which every operation is an Attempt."""
    at = next(position for position, each in enumerate(job.operations) if isinstance(each, Kill))
    dead = job.operations[at]
    assert isinstance(dead, Kill)
    for rank in trace.ranks:
        ended = [each for each in rank.records if each.operation > at and each.left is not None]
        error = next((each for each in ended if each.values["error"]), None)
        for record in ended if rank.rank != dead.rank else ():
            call = None if record.values["error"] else _call_of(job, rank, record.operation)
            if call is None:
                continue
            swallowed = causes.ERROR_SWALLOWED(operation=call.kind)
            headline = (
                f"rank {rank.rank} completed {call.words} (operation {record.operation}) without rank {dead.rank}, which was "
                "gone; it should have raised an error or still wait"
            )
            details = () if error is None else (f"operation {error.operation} had raised {error.values['error']}",)
            blamed = as_causes((swallowed, failure_forgotten(error is not None)))
            raise Finding(Diagnosis(headline, blamed, details=details))


class _Call(NamedTuple):
    """A method of the contract, and the call in words."""

    kind: str
    words: str


def _call_of(job: Job, rank: RankTrace, position: int) -> _Call | None:
    """The attempted call; None if it does not need the dead rank, or is not made on this rank."""
    attempt = job.operations[position]
    assert isinstance(attempt, Attempt)
    operation = attempt.operation
    if isinstance(operation, AllReduce) and not operation.wait:
        return None  # a rank that only starts the call need not notice the death
    if isinstance(operation, Wait):
        begun = rank.values(operation.operation)["error"]
        return None if begun else _Call("wait", "wait() for an asynchronous all_reduce")
    if isinstance(operation, SendRecv):
        return _Call("recv", "recv") if any(rank.rank == dest for _, dest in operation.pairs) else None
    group = getattr(operation, "group", None)
    if group is not None and rank.rank not in group:
        return None
    tensor = getattr(operation, "tensor", None)
    size = f" of {tensor.dtype}{list(tensor.shape)}" if tensor is not None else ""
    return _Call(operation.kind, f"{operation.kind}{size}{in_group(operation)}")


def _closed(job: Job, trace: Trace) -> None:
    """Ignores errors of close() and the end of its process: something has failed already."""
    for rank in trace.ranks:
        if rank.outcome == "hung" and rank.last is not None and rank.last.kind == Close.kind:
            raise finding_about(
                rank,
                f"rank {rank.rank} was still in close() {trace.deadline:g} s after its all_reduce raised because of dead rank "
                f"{trace.ranks[-1].rank}; close() should return",
                causes.CLOSE_WAITS_FOR_DEAD(),
            )
