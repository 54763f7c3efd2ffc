"""Failed verdicts, made by hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ddpcheck.causes import Cause
from ddpcheck.job import Job
from ddpcheck.running.failure_groups import group_failures
from ddpcheck.verdict import Diagnosis, Status, Verdict


def failed(
    check: str, family: str, *causes: Cause, headline: str = "got 2, but should be 1", at: int = 2,
    status: Status = "failed", adapter: str = "mine", job: Job | None = None, operation: int = -1,
) -> Verdict:  # fmt: skip
    """A failure of this check by these causes, the likeliest first."""
    return Verdict(
        adapter, at, check, family, status, diagnosis=Diagnosis(headline, causes, operation=operation), job=job
    )


def headlines(verdicts: Iterable[Verdict]) -> list[str]:
    """The causes of the groups of these failures, the first group first."""
    return [group.text for group in group_failures(verdicts)]


def about(verdict: Verdict, name: str) -> Verdict:
    """The verdict with this parameter's gradient as subject."""
    assert verdict.diagnosis is not None
    return replace(verdict, diagnosis=replace(verdict.diagnosis, subject=("gradients", name)))
