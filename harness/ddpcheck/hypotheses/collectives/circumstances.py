"""Hypotheses about a failed Job of collectives whose reductions, arrays, call forms or delays are special."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from ...causes import Cause, values
from ...causes import collectives as causes
from ...job import AllReduce, Job, Sleep, TensorSpec
from ...seeded_values import Array
from ...trace import Trace
from .evidence import WrongResult

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


@dataclass(frozen=True)
class EarlyBarrier:
    """A barrier that rank `rank` left before rank `late` entered. waited: its seconds in the barrier. awaited: the ranks for
    which it waited in earlier barriers.
    """

    rank: int
    late: int
    waited: float
    awaited: tuple[int, ...] = ()


@dataclass(frozen=True)
class ExplainedResult:
    """A wrong result of a collective. sure: the causes found so far, from its values."""

    wrong: WrongResult
    got: Array
    sure: tuple[Cause, ...]

    @property
    def float_product(self) -> bool:
        return self.wrong.all_reduce == "prod" and self.got.dtype.kind == "f"


def product_by_logarithms(of: ExplainedResult) -> Cause | None:
    """A product is NaN where a factor is negative, and only there."""
    negative = (np.stack(of.wrong.parts) < 0).any(axis=0) if of.float_product else np.zeros(0)
    nan = negative.any() and np.array_equal(np.isnan(of.got), negative)
    return causes.PRODUCT_BY_LOGARITHMS() if nan else None


def product_rounded(of: ExplainedResult) -> tuple[Cause, ...]:
    """A product is slightly wrong, which logarithms may explain, too."""
    rounded = of.float_product and values.LAST_BITS_WRONG.explains(of.sure)
    return (*of.sure, causes.PRODUCT_BY_LOGARITHMS().but("possible")) if rounded else ()


def wait_returns_early(of: ExplainedResult) -> tuple[Cause, ...]:
    """An asynchronous all-reduce gives the rank's own array."""
    asynchronous = isinstance(of.wrong.collective, AllReduce) and not of.wrong.collective.wait
    early = asynchronous and values.NOT_REDUCED.explains(of.sure)
    return (causes.WAIT_RETURNS_EARLY(), *of.sure) if early else ()


def as_of_values(of: ExplainedResult) -> tuple[Cause, ...]:
    """The circumstances tell nothing."""
    return of.sure


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


def barrier_gave_up(of: EarlyBarrier) -> Cause | None:
    return causes.BARRIER_GAVE_UP(seconds=of.waited) if of.waited > _LONG else None


def barrier_waits_for_some(of: EarlyBarrier) -> Cause | None:
    """The rank waited for other late ranks, and never for this one."""
    if not of.awaited or of.late in of.awaited:
        return None
    return causes.BARRIER_WAITS_FOR_SOME(ranks=of.awaited, late=of.late, rank=of.rank)


def barrier_does_not_block(of: EarlyBarrier) -> Cause | None:
    return None if barrier_waits_for_some(of) else causes.BARRIER_DOES_NOT_BLOCK()


_LONG = 0.5
"""Seconds that exceed any normal barrier."""
