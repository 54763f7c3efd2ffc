"""Causes of ranks and launchers that do not notice, or misreport, a failed rank."""

from __future__ import annotations

from ..causes import Cause
from ..causes import lifecycle as causes
from ..job import (
    Job,
    Sleep,
)
from ..launchers.failing_rank_program import CONSEQUENCE, ROOT_CAUSE, Trial
from ..trace import RankTrace, Trace


def why_misreported(trial: Trial) -> Cause:
    if "killed" in trial.ended or (trial.status or 0) < 0:
        return causes.OWN_KILL_REPORTED()
    if ROOT_CAUSE in trial.output:
        return causes.RANKS_AWAITED_IN_ORDER()
    return causes.OUTPUT_NOT_PASSED_ON() if CONSEQUENCE in trial.output else causes.LAST_WORDS_LOST()


def why_it_waits(job: Job, trace: Trace, waiting: RankTrace, dead: int) -> tuple[Cause, ...]:
    """The causes why this rank does not notice the end of the rank `dead`."""
    assert waiting.last is not None
    if dead in (getattr(job.operations[waiting.last.operation], "group", None) or ()):
        return (causes.DEATH_UNNOTICED_IN_GROUP(),)
    noticed = tuple(rank.rank for rank in trace.ranks if rank.outcome == "raised")
    if noticed:
        return (causes.ERROR_NOT_PASSED_ON(ranks=noticed),)
    late = any(isinstance(each, Sleep) and each.rank == waiting.rank for each in job.operations)
    return (causes.DEATH_UNNOTICED(), *(causes.TOLD_TO_WAITING_RANKS_ONLY(rank=waiting.rank),) * late)
