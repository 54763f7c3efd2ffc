"""Hypotheses about ranks and launchers that do not notice, or misreport, a failed rank."""

from __future__ import annotations

from dataclasses import dataclass

from ..causes import Cause
from ..causes import lifecycle as causes
from ..job import Close, Job, Sleep
from ..launchers.failing_rank_program import CONSEQUENCE, ROOT_CAUSE, Trial
from ..trace import RankTrace, Trace


@dataclass(frozen=True)
class Unaware:
    """A rank that raises no error, although the rank `dead` is gone."""

    job: Job
    trace: Trace
    rank: RankTrace
    dead: int


def death_unnoticed_in_group(of: Unaware) -> Cause | None:
    """It waits in a collective of a group that the dead rank belongs to."""
    if of.rank.outcome != "hung" or of.rank.last is None:
        return None
    group = getattr(of.job.operations[of.rank.last.operation], "group", None) or ()
    return causes.DEATH_UNNOTICED_IN_GROUP() if of.dead in group else None


def noticed_by_others(of: Unaware) -> Cause | None:
    noticed = of.trace.raised if of.rank.outcome == "hung" else ()
    return causes.ERROR_NOT_PASSED_ON(ranks=noticed) if noticed else None


def death_unnoticed(of: Unaware) -> tuple[Cause, ...]:
    """Ranks that wait learn of it, perhaps, and this one came late."""
    if of.rank.outcome != "hung":
        return ()
    late = any(isinstance(each, Sleep) and each.rank == of.rank.rank for each in of.job.operations)
    return (causes.DEATH_UNNOTICED(), *(causes.TOLD_TO_WAITING_RANKS_ONLY(rank=of.rank.rank),) * late)


def ended_by_death(of: Unaware) -> Cause | None:
    return causes.PROCESS_ENDED_BY_DEATH() if of.rank.outcome == "died" else None


def wrong_on_several_hosts(uneven: bool) -> Cause:
    """uneven: only hosts with different numbers of ranks give wrong results."""
    return causes.HOSTS_WEIGH_EQUALLY() if uneven else causes.LOCAL_TAKEN_FOR_GLOBAL()


def error_not_passed_on(trace: Trace) -> Cause | None:
    """trace: of ranks that made different calls, of which some raised no error."""
    raised = trace.raised
    return causes.ERROR_NOT_PASSED_ON(ranks=raised) if raised else None


def messages_unlabelled(trace: Trace) -> Cause:
    return causes.MESSAGES_UNLABELLED()


def failure_forgotten(told: bool) -> Cause | None:
    """told: whether another call of the rank that came out of one raised an error."""
    return causes.FAILURE_FORGOTTEN() if told else None


def sent_data_lost_by_close(job: Job, rank: RankTrace) -> Cause | None:
    """Rank 0 has sent and closed, and this rank, which is late, fails between its Sleep and its own close()."""
    late, closing = (
        next(at for at, op in enumerate(job.operations) if isinstance(op, kind)) for kind in (Sleep, Close)
    )
    reached = -1 if rank.last is None else rank.last.operation
    return causes.SENT_DATA_LOST_BY_CLOSE(rank=0) if late < reached < closing else None


def signal_taken_for_success(killed: bool) -> Cause | None:
    """killed: whether the rank whose failure the launcher takes for a success was killed."""
    return causes.SIGNAL_TAKEN_FOR_SUCCESS() if killed else None


def status_lost(killed: bool) -> Cause:
    return causes.STATUS_LOST()


def own_kill_reported(trial: Trial) -> Cause | None:
    killed = (trial.ended is not None and trial.ended.killed) or (trial.status or 0) < 0
    return causes.OWN_KILL_REPORTED() if killed else None


def ranks_awaited_in_order(trial: Trial) -> Cause | None:
    return causes.RANKS_AWAITED_IN_ORDER() if ROOT_CAUSE in trial.output else None


def output_not_passed_on(trial: Trial) -> Cause | None:
    return causes.OUTPUT_NOT_PASSED_ON() if CONSEQUENCE in trial.output else None


def last_words_lost(trial: Trial) -> Cause:
    return causes.LAST_WORDS_LOST()
