"""Exceptions in the middle of a backward that the training program catches: the next backward is unaffected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpcheck import assertions
from ddpcheck.causes import replicas as causes
from ddpcheck.causes.cause import Given
from ddpcheck.checks import law
from ddpcheck.contract import Capabilities, needs
from ddpcheck.hypotheses.replicas.special_runs import broken_backward_left
from ddpcheck.job import Backward, Job, Operation, Step
from ddpcheck.models.spec import mlp
from ddpcheck.trace import Trace
from ddpcheck.verdict import Diagnosis, Finding

from ..drawing import for_each
from ..explicit_examples import fitting, window
from ..judges import Judge, with_causes
from ..strategies import PARAMETERS, shards, training_job
from .comparison import as_one_process

if TYPE_CHECKING:
    from ddpcheck.session import Session


@law("accumulation", needs.replica, needs.replica.no_sync, needs.replica.broken_backward)
def check_failed_backward_inside_no_sync_leaves_no_trace(session: Session) -> None:
    """A backward inside no_sync that an exception ends half-way has no effect after zero_grad(), whether it failed on every
    rank or on one. Later backwards are synchronised and include nothing of the failed backward.
    """
    world = session.world_size
    jobs = [broken(world, ranks, sync=False) for ranks in {tuple(range(world)), (world - 1,)}]
    for_each(session, fitting(session, jobs), _as_if_never_begun(session.capabilities))


@law("accumulation", needs.replica, needs.replica.broken_backward("recovers"))
def check_failed_backward_leaves_no_trace(session: Session) -> None:
    """A backward that an exception ends half-way on every rank has no effect after zero_grad(). Later backwards are
    synchronised and include nothing of the failed backward.
    """
    world = session.world_size
    jobs = [broken(world, tuple(range(world)), sync=True, first=first) for first in (False, True)]
    for_each(session, fitting(session, jobs), _as_if_never_begun(session.capabilities))


@law("accumulation", needs.replica, needs.replica.broken_backward("raises"), needs.ranks(2, most=2))
def check_backward_after_failed_backward_raises_or_is_correct(session: Session) -> None:
    """After an exception ended a backward half-way on every rank, the next backward either raises on every rank or is correct."""
    # one Job, because ranks that have raised must restart
    jobs = fitting(session, [broken(session.world_size, tuple(range(session.world_size)), sync=True)])
    never_begun = _as_if_never_begun(session.capabilities)

    def judge(job: Job, trace: Trace) -> None:
        outcomes = {rank.outcome for rank in trace.ranks}
        if "raised" not in outcomes:
            never_begun(job, trace)
        elif outcomes != {"raised"}:
            others = ", ".join(f"rank {rank.rank} {rank.outcome}" for rank in trace.ranks)
            headline = (
                f"after a backward that broke on every rank the next one should raise on every rank, but {others}"
            )
            raise Finding(Diagnosis(headline, (causes.BROKEN_BACKWARD_TOLD_APART(),)), hung="hung" in outcomes)

    for_each(session, jobs, judge)


def _as_if_never_begun(promised: Capabilities) -> Judge:
    like_one_process = with_causes(as_one_process(promised), _causes_of_a_failed_backward)

    def judge(job: Job, trace: Trace) -> None:
        for rank in trace.ranks:
            for seen in rank.records:
                what = f"operation {seen.operation}: the exception in the middle of backward on rank {rank.rank}"
                assertions.that("swallowed" not in seen.values, f"{what} did not come out", causes.EXCEPTION_DROPPED())
        like_one_process(job, trace)

    return judge


def _causes_of_a_failed_backward(job: Job, trace: Trace, finding: Finding) -> Given:
    return broken_backward_left(job, finding.diagnosis.operation), finding.diagnosis.causes


def broken(world_size: int, ranks: tuple[int, ...], *, sync: bool, first: bool = False) -> Job:
    """A backward, one that fails on these ranks (or this one `first`), zero_grad, two windows and a step. With this
    seed, none of their gradients is zero as a whole.
    """
    before: list[Operation] = [] if first else window(world_size, (2,), look=True)
    after = [*window(world_size, (2,), look=True), *window(world_size, (2, 2), look=True), Step(), *PARAMETERS]
    breaking = Backward(shards([2] * world_size, 2 * world_size), sync=sync, broken=ranks)
    return training_job(world_size, mlp((2, 3, 2)), [*before, breaking, *after], seed=6)
