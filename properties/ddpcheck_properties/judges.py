"""Judges of Jobs, and judges made of other judges, with causes that only the kind of Job suggests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ddpcheck.causes import Cause
from ddpcheck.causes.cause import Given, as_causes
from ddpcheck.job import Job
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

if TYPE_CHECKING:
    from ddpcheck.session import Session

Judge = Callable[[Job, Trace], None]
"""Raises a Finding if the Trace of a Job is wrong."""
Explain = Callable[[Job, Trace, Finding], Given]
"""The causes of a Finding about this Trace of the Job; none if it keeps its own."""


def finding_on(session: Session, job: Job, judge: Judge) -> Finding | None:
    """The Finding on one more Job, which tells causes apart; None if all is right."""
    try:
        judge(job, session.run(job))
    except Finding as finding:
        return finding
    return None


def with_causes(judge: Judge, explain: Explain) -> Judge:
    """The judge, whose findings have the causes that `explain` returns in place of their own."""

    def explained(job: Job, trace: Trace) -> None:
        try:
            judge(job, trace)
        except Finding as finding:
            causes = as_causes(explain(job, trace, finding))
            raise (finding.blaming(causes) if causes else finding) from None

    return explained


def noting(judge: Judge, note: str) -> Judge:
    """The judge, whose findings have this note."""

    def noted(job: Job, trace: Trace) -> None:
        try:
            judge(job, trace)
        except Finding as finding:
            raise finding.noting(note) from None

    return noted


def because(judge: Judge, cause: Cause, *, name: str = "") -> Judge:
    """The judge, whose findings, or those on the value of this name, also name this cause."""

    def explain(job: Job, trace: Trace, finding: Finding) -> Given:
        concerned = trace.completed and name in ("", finding.diagnosis.subject[1])
        return (finding.diagnosis.causes, cause) if concerned else None

    return with_causes(judge, explain)
