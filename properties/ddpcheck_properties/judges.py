"""Judges made of other judges, with causes that only the kind of Job suggests."""

from __future__ import annotations

from collections.abc import Callable

from ddpcheck.causes import Cause
from ddpcheck.causes.cause import Given, as_causes
from ddpcheck.job import Job
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from .drawing import Judge

Explain = Callable[[Job, Trace, Finding], Given]
"""The causes of a Finding about this Trace of the Job; none if it keeps its own."""


def with_causes(judge: Judge, explain: Explain) -> Judge:
    """The judge, whose findings have the causes that `explain` returns in place of their own."""

    def explained(job: Job, trace: Trace) -> None:
        try:
            judge(job, trace)
        except Finding as finding:
            causes = as_causes(explain(job, trace, finding))
            raise (finding.blaming(causes) if causes else finding) from None

    return explained


def because(judge: Judge, cause: Cause, *, name: str = "") -> Judge:
    """The judge, whose findings, or those on the value of this name, also name this cause."""

    def explain(job: Job, trace: Trace, finding: Finding) -> Given:
        concerned = trace.completed and name in ("", finding.diagnosis.subject[1])
        return (finding.diagnosis.causes, cause) if concerned else None

    return with_causes(judge, explain)
