"""Hypotheses about a failed Job of collectives whose arrays, call forms or delays are special."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...causes import Cause, values
from ...causes import collectives as causes
from ...job import Job, Sleep, TensorSpec
from ...trace import Trace

_OF_WRITING = re.compile(r"read[- ]?only|writ")
"""Words of an error about a read-only array, in lower case."""
_FEW = 3
"""Operations before the failed one in which a delay may still show."""


@dataclass(frozen=True)
class FailedJob:
    """A Job that failed. sure: the causes found so far. operation: the position of the one that shows it, or -1."""

    job: Job
    trace: Trace
    sure: tuple[Cause, ...]
    operation: int = -1


def wait_returns_early(sure: tuple[Cause, ...]) -> Cause | None:
    """sure: the causes of a wrong result of an asynchronous call."""
    return causes.WAIT_RETURNS_EARLY() if values.NOT_REDUCED.explains(sure) else None


def copy_reduced(sure: tuple[Cause, ...]) -> Cause | None:
    """sure: the causes of a wrong result in place of a non-contiguous array."""
    return causes.COPY_REDUCED() if values.NOT_REDUCED.explains(sure) else None


def argument_must_be_writable(of: FailedJob) -> Cause | None:
    """All arguments are read-only, and a rank's error is about writing."""
    raised = of.trace.first_failure
    said = "" if raised is None else raised.error.lower()
    return causes.ARGUMENT_MUST_BE_WRITABLE() if _OF_WRITING.search(said) else None


def path_by_content(of: FailedJob) -> Cause | None:
    """A rank failed or hangs; ranks may hold arrays of different makes."""
    if of.trace.completed:
        return None
    tensors = [getattr(operation, "tensor", None) for operation in of.job.operations]
    patchy = any(isinstance(each, TensorSpec) and each.values == "patchy" for each in tensors)
    return causes.PATH_BY_CONTENT().but("likely" if patchy else "possible")


def shortened_by_content(of: FailedJob) -> Cause | None:
    return causes.SHORTENED_BY_CONTENT() if of.trace.completed else None


def handle_forgotten(of: FailedJob) -> Cause | None:
    """The first handle is waited for last, after those of all other calls, and its result is wrong."""
    last = of.operation == len(of.job.operations) - 1
    return causes.HANDLE_FORGOTTEN(others=(len(of.job.operations) - 2) // 2) if last else None


def late_rank_missed(of: FailedJob, nap: float) -> tuple[Cause, ...]:
    """The causes found so far, and a late rank, in front if these may follow from it. nap: of a rank that straggles."""
    late = _late_to(of.job, of.operation)
    if late is None or not of.trace.completed:
        return of.sure
    straggles = late.seconds == nap
    slept = sum(each.seconds for each in of.job.operations if isinstance(each, Sleep) and each.rank == late.rank)
    missed = causes.LATE_RANK_MISSED(rank=late.rank, seconds=slept if straggles else late.seconds)
    follows = straggles or not of.sure or of.sure[0].id in _MISSING
    return (missed, *of.sure) if follows else (*of.sure, missed)


_MISSING = {
    each.id
    for each in (values.ZERO, values.FLUSHED_TO_ZERO, values.NOT_REDUCED, values.PART_NOT_REDUCED, causes.RANK_LEFT_OUT)
}
"""Causes that a late rank explains better."""


def _late_to(job: Job, position: int) -> Sleep | None:
    """The last Sleep of the few operations before this one."""
    before = job.operations[max(0, position - _FEW) : position] if position > 0 else ()
    slept = [each for each in before if isinstance(each, Sleep)]
    return slept[-1] if slept else None


def barrier_gave_up(waited: float) -> Cause | None:
    """waited: seconds in a barrier that a rank left before another one entered."""
    return causes.BARRIER_GAVE_UP(seconds=waited) if waited > _LONG else None


def barrier_does_not_block(waited: float) -> Cause:
    return causes.BARRIER_DOES_NOT_BLOCK()


_LONG = 0.5
"""Seconds that exceed any normal barrier."""
