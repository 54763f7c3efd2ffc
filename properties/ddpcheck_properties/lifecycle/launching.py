"""The report of a launcher when one rank fails and the others fail because of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpcheck.causes import lifecycle as causes
from ddpcheck.checks import law
from ddpcheck.contract import needs
from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.ordered_hypotheses.ranks import OF_A_MISREPORT, OF_FAILURE_AS_SUCCESS
from ddpcheck.job import Job, Raise
from ddpcheck.launchers.failing_rank_program import ROOT_CAUSE, ROOT_STATUS, Trial
from ddpcheck.verdict import Diagnosis, Finding

if TYPE_CHECKING:
    from ddpcheck.session import Session

SOON, LATER = 0.15, 1.0
"""Seconds from the first failure to the failures that follow from it."""


@law("failures", needs.ranks(2))
def check_launcher_reports_the_first_failed_rank(session: Session) -> None:
    """When one rank fails or is killed and the others fail because of it, the launcher soon ends the run and reports the
    first failed rank, with that rank's error text.
    """
    # the last rank, whose end a launcher that waits in order notices last, and the rank before it
    for failing, killed in ((session.world_size - 1, False), (session.world_size - 2, True)):
        finding = _misreport(session.trial(failing, SOON, killed=killed), session.deadline, killed=killed)
        if finding is not None:  # on a busy host the launcher may see both ends at once
            finding = _misreport(session.trial(failing, LATER, killed=killed), session.deadline, killed=killed)
        if finding is not None:
            # as a Job, so that it can be described
            finding.job = Job(session.world_size, (Raise(failing, ROOT_CAUSE),))
            raise finding


def _misreport(trial: Trial, deadline: float, *, killed: bool) -> Finding | None:
    """The Finding of a run that does not end, or whose report does not name the first failed rank; None if all is right."""
    first = f"rank {trial.failing} was killed" if killed else f"rank {trial.failing} failed first"
    ended = f"{first}, by SIGKILL" if killed else f"{first}, with status {ROOT_STATUS}"
    wrote = tuple(trial.output.splitlines())
    if trial.status is None:
        headline = f"{first}, but the launcher still waited after {deadline:g} s; it should have ended the run"
        return Finding(Diagnosis(headline, (causes.RANKS_AWAITED_IN_ORDER(),), details=wrote))
    if trial.status == 0:
        told = first_cause(OF_FAILURE_AS_SUCCESS, killed)
        return Finding(Diagnosis(f"{first}, but the launcher reports success", told, details=wrote))
    if trial.ended is not None and trial.ended.rank not in (None, trial.failing):
        headline = f'{ended}, but the launcher says "{trial.ended}"'
    elif trial.known is not None and trial.known.status == ROOT_STATUS != trial.status:
        headline = f"{ended}, but the launcher's own status is {trial.status}"
    elif ROOT_CAUSE not in trial.output:
        headline = f'{first}, but its error text, "{ROOT_CAUSE}", is not in the output of the launcher'
    else:
        return None
    return Finding(Diagnosis(headline, first_cause(OF_A_MISREPORT, trial), details=wrote))
