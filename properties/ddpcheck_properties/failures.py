"""What becomes of the others when one rank fails: none goes on as if nothing had happened, and none waits for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpcheck.checks import law
from ddpcheck.job import AllReduce, Job, Kill, Operation, TensorSpec
from ddpcheck.operations.probes import Leave
from ddpcheck.trace import RankTrace, Record, Trace
from ddpcheck.verdict import Diagnosis, Finding

from .drawing import for_each
from .strategies_collectives import dtypes, reductions

if TYPE_CHECKING:
    from ddpcheck.session import Session

FAILS_AT = 1
"""Position of the mishap in a Job of _with_mishap."""


@law("failures", "collective:all_reduce", "world_size>=2")
def check_no_collective_ends_without_a_dead_rank(session: Session) -> None:
    """No rank comes out of a collective that a dead rank never entered: it raises an error, or is still waiting."""
    last = session.world_size - 1
    for_each(session, [_with_mishap(session, Kill(last))], _nobody_went_on)


@law("failures", "collective:all_reduce", "detects_dead_peer", "world_size>=2")
def check_death_of_a_rank_is_an_error_on_every_other_rank(session: Session) -> None:
    """When a rank dies every other rank raises an error within the grace time, whichever rank it is."""
    ranks = range(session.world_size)
    for_each(session, [_with_mishap(session, Kill(rank)) for rank in ranks], _raised_everywhere)


@law("failures", "collective:all_reduce", "detects_failed_peer", "world_size>=2")
def check_exception_of_a_rank_is_an_error_on_every_other_rank(session: Session) -> None:
    """When a rank's program ends by an exception, closed before or not, it does end, and every other rank raises."""
    mishaps = (Leave(session.world_size - 1), Leave(0, close=True))
    for_each(session, [_with_mishap(session, mishap) for mishap in mishaps], _raised_everywhere)


def _with_mishap(session: Session, mishap: Operation) -> Job:
    """A collective that goes well, the mishap, and two more collectives."""
    promised = session.capabilities
    made = [
        AllReduce(TensorSpec((5,), dtypes(promised)[0], "powers", seed), reductions(promised)[0]) for seed in range(3)
    ]
    return Job(session.world_size, (made[0], mishap, *made[1:]))


def _nobody_went_on(job: Job, trace: Trace) -> None:
    dead = _dead(job)
    for rank in trace.ranks:
        through = [
            record.operation for record in rank.records if record.operation > FAILS_AT and record.left is not None
        ]
        if rank.rank != dead and through:
            raise Finding(
                Diagnosis(
                    f"rank {rank.rank} came out of operation {through[0]} (all_reduce), which rank {dead} never entered as it "
                    "was gone; it should have raised an error, or still be waiting",
                    "a broken connection is taken for the end of the operation, or an error is swallowed",
                )
            )


def _raised_everywhere(job: Job, trace: Trace) -> None:
    _nobody_went_on(job, trace)
    dead = _dead(job)
    ended = "had died" if isinstance(job.operations[FAILS_AT], Kill) else "had ended by an exception"
    if trace.ranks[dead].outcome == "hung":
        raise _still_there(trace.ranks[dead])
    for rank in trace.ranks:
        if rank.rank == dead or rank.outcome == "raised":
            continue
        hung = rank.outcome == "hung"
        raise Finding(
            Diagnosis(
                f"rank {rank.rank} {'was still waiting' if hung else rank.outcome} in {_place(rank.last)} after rank {dead} "
                f"{ended}, but should have raised an error",
                "nobody told it: a broken connection is not noticed, and there is no time limit" if hung else "",
                "the stack below" if rank.stack else "",
                (f"stack of rank {rank.rank}:\n{rank.stack}",) if rank.stack else (),
            ),
            hung=hung,
        )


def _still_there(rank: RankTrace) -> Finding:
    return Finding(
        Diagnosis(
            f"rank {rank.rank}'s program ended by an exception in {_place(rank.last)}, but its process is still there; it "
            "should have ended, so that the others notice",
            "something keeps it: a thread that is no daemon, an exit handler, or a close() that waits for the other ranks",
            "the stack below" if rank.stack else "",
            (f"stack of rank {rank.rank}:\n{rank.stack}",) if rank.stack else (),
        ),
        hung=True,
    )


def _dead(job: Job) -> int:
    mishap = job.operations[FAILS_AT]
    assert isinstance(mishap, (Kill, Leave))
    return mishap.rank


def _place(last: Record | None) -> str:
    return f"operation {last.operation} ({last.kind})" if last else "start-up"
