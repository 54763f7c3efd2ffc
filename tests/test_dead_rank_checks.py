"""Checks of calls after a rank has died, on hand-written Traces."""

from __future__ import annotations

from typing import Any

import pytest

from ddpcheck import Finding, Job, RankTrace, Trace
from ddpcheck.causes import lifecycle as causes
from ddpcheck.job import Attempt, Barrier, Kill
from ddpcheck.trace import Record
from ddpcheck_properties.lifecycle.after_death import no_call_completes

JOB = Job(2, (Kill(1), Attempt(Barrier()), Attempt(Barrier())))
RAISED, COMPLETED = {"error": "RuntimeError: rank 1 is gone"}, {"error": ""}


def trace_of(*attempts: dict[str, Any], hangs: bool = False) -> Trace:
    """Rank 1 is dead; rank 0's calls after the death ended so, and the next one hangs."""
    records = [Record(place, "attempt", 0.0, 1.0, values) for place, values in enumerate(attempts, start=1)]
    records += [Record(len(records) + 1, "attempt", 1.0, None, {})] * hangs
    rank = RankTrace(0, "hung" if hangs else "done", (Record(0, "kill", 0.0, 0.0, {}), *records))
    return Trace((rank, RankTrace(1, "died", ())))


@pytest.mark.parametrize("attempts", [(RAISED, RAISED), (RAISED,), ()], ids=len)
def test_calls_that_raise_or_still_wait_pass(attempts: tuple[dict[str, Any], ...]) -> None:
    no_call_completes(JOB, trace_of(*attempts, hangs=len(attempts) < 2))


@pytest.mark.parametrize("hangs", [False, True])
def test_a_completed_call_fails_whether_or_not_the_next_one_hangs(hangs: bool) -> None:
    with pytest.raises(Finding, match=r"rank 0 completed barrier \(operation 1\) without rank 1") as caught:
        no_call_completes(JOB, trace_of(COMPLETED, hangs=hangs))
    assert caught.value.diagnosis.causes == (causes.ERROR_SWALLOWED(operation="barrier"),)


def test_a_call_that_completes_after_an_error_names_the_error() -> None:
    with pytest.raises(Finding) as caught:
        no_call_completes(JOB, trace_of(RAISED, COMPLETED))
    assert caught.value.diagnosis.details == ("operation 1 had raised RuntimeError: rank 1 is gone",)
    assert causes.FAILURE_FORGOTTEN() in caught.value.diagnosis.causes
