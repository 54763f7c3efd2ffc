"""More consecutive calls on one array than small counters can count: each has its own result."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from ddpcheck import assertions
from ddpcheck.causes.cause import as_causes
from ddpcheck.checks import law
from ddpcheck.contract import CallForm, Capabilities, needs
from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.collectives.calls import WrongCalls, call_counter_wraps
from ddpcheck.hypotheses.ordered_hypotheses.collectives import OF_EQUAL_CALLS
from ddpcheck.job import Calls, Job
from ddpcheck.seeded_values import Array
from ddpcheck.trace import Trace
from ddpcheck.verdict import Diagnosis, Finding

from ..drawing import for_each, has_time_for_long_jobs
from ..strategies_collectives import fitting_reductions

if TYPE_CHECKING:
    from ddpcheck.session import Session

THOUSAND = 1_100
"""More calls than ten bits, or a thousand tags, can distinguish."""
TWO_BYTES = 65_600
"""More calls than 16 bits can distinguish."""
FEW = 20
"""Enough calls to reveal an array of which a copy was kept."""
AFFORDABLE = 60.0
"""Seconds for the calls of one kind."""
DEEP = 70_000
"""Calls of each kind in the deep profile, independent of their duration."""
Kind = Literal["all_reduce", "all_reduce_async", "broadcast", "all_gather", "reduce_scatter", "send_recv"]
_KINDS: tuple[Kind, ...] = ("all_reduce", "send_recv", "all_gather", "broadcast", "reduce_scatter")
_EXACT = ("float32", "float64", "int32", "int64", "uint32", "uint64", "int16", "uint16")
"""Dtypes that hold the sums of 5 ranks."""


@law("collectives", needs.collectives, needs.ranks(2, most=4))
def check_array_reused_over_thousands_of_calls_is_correct(session: Session) -> None:
    """An array may be refilled and passed again, in any memory layout, and no counter of calls, tags or handles wraps.

    With two ranks, each of 1,100 calls of one kind has its own result: 65,600 calls at high effort, 70,000 in the deep
    profile.
    """
    found, thorough = _offered(session.capabilities), has_time_for_long_jobs(session)
    took: dict[str, float] = {}

    def timed(job: Job, trace: Trace) -> None:
        each_has_its_own(job, trace)
        (made,), record = job.operations, trace.ranks[0].records[0]
        assert isinstance(made, Calls)
        assert record.left is not None
        took[made.collective] = record.left - record.entered

    for_each(session, _jobs(session, found, FEW, strided=True), each_has_its_own)
    if session.world_size > 2:
        return
    usual = [each for each in found if thorough or each.collective in ("all_reduce", "send_recv", "all_gather")]
    for_each(session, _jobs(session, usual, THOUSAND), timed)
    if session.deep:
        for_each(session, _jobs(session, found, DEEP), each_has_its_own)
    elif thorough:
        affordable = AFFORDABLE * THOUSAND / TWO_BYTES
        cheap = [each for each in usual if took.get(each.collective, 0.0) < affordable]
        for_each(session, _jobs(session, cheap, TWO_BYTES), each_has_its_own)


def _offered(promised: Capabilities) -> list[Calls]:
    """Every promised kind of call, with a dtype and a reduction."""
    dtype = next((each for each in _EXACT if each in promised.collectives.dtypes), "")
    if not dtype:
        return []
    found: list[Calls] = []
    for kind in _KINDS:
        if kind not in promised.collectives.operations:
            continue
        if kind not in ("all_reduce", "reduce_scatter"):
            found.append(Calls(kind, FEW, dtype))
            continue
        for reduction in fitting_reductions(promised, dtype):
            if reduction != "prod":  # a product would overflow
                found.append(Calls(kind, FEW, dtype, reduction))
                if kind == "all_reduce" and promised.has(CallForm.ASYNCHRONOUS):
                    found.append(Calls("all_reduce_async", FEW, dtype, reduction))
                break
    return found


def _jobs(session: Session, chosen: list[Calls], times: int, *, strided: bool = False) -> list[Job]:
    return [Job(session.world_size, (replace(each, times=times, strided=strided),)) for each in chosen]


def each_has_its_own(job: Job, trace: Trace) -> None:
    """A judge: every call has its own result."""
    assertions.completed(trace)
    for position, made in enumerate(job.operations):
        assert isinstance(made, Calls)
        for rank, record in enumerate(trace.ranks):
            want, got = made.wanted(rank, job.world_size), record.values(position)["results"]
            if want is not None:
                _compare(made, got, want, made.values(rank, job.world_size), rank)


def _compare(made: Calls, got: Array, want: Array, own: Array, rank: int) -> None:
    wrong = np.flatnonzero((got != want).any(axis=1))
    if not len(wrong):
        return
    first = int(wrong[0])
    of = WrongCalls(got, want, own, wrong)
    raise Finding(
        Diagnosis(
            f"call {first} of {made.times}, {made.collective}, one{' strided' * made.strided} array of {made.dtype}[2]: result "
            f"on rank {rank}: got {got[first].tolist()}, but should be {want[first].tolist()}; {len(wrong)} are wrong",
            as_causes((first_cause(OF_EQUAL_CALLS, of), call_counter_wraps(of))),
        )
    )
