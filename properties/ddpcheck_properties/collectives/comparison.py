"""Judges of collectives: compare Traces with the results of results.py, and collect evidence for a diagnosis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ddpcheck import assertions
from ddpcheck.causes import collectives as causes
from ddpcheck.counted_nouns import ranks_named
from ddpcheck.hypotheses.arrays import Evidence
from ddpcheck.hypotheses.choose_causes import all_causes, first_cause
from ddpcheck.hypotheses.collectives.circumstances import EarlyBarrier, ExplainedResult
from ddpcheck.hypotheses.collectives.evidence import WrongResult
from ddpcheck.hypotheses.collectives.messages import WrongMessage
from ddpcheck.hypotheses.evidence import evidence_of_message, evidence_of_result
from ddpcheck.hypotheses.ordered_hypotheses.collectives import OF_AN_EARLY_BARRIER, OF_AN_EXPLAINED_RESULT
from ddpcheck.job import AllReduce, Barrier, Job, SendRecv, Sleep, Wait
from ddpcheck.numerics import different_bits, same_bits
from ddpcheck.oracle.collectives import Want, finished, members_of, wants
from ddpcheck.seeded_values import Array
from ddpcheck.trace import Record, Trace
from ddpcheck.verdict import Diagnosis, Finding

from .names import named


def results_hold(job: Job, trace: Trace) -> None:
    """The judge of most collective checks: every rank got the expected result, and no barrier let a rank through early."""
    assertions.completed(trace)
    for position, operation in enumerate(job.operations):
        if isinstance(operation, Barrier):
            _blocked(job, operation, position, trace)
        elif isinstance(operation, SendRecv):
            _received(job, operation, position, trace)
    for position, collective, members in finished(job):
        wanted = wants(collective, members)
        for rank in members:
            wrong = WrongResult(job, collective, rank, members_of(collective.group, job.world_size), position)
            what = f"{named(collective, position)}: result"
            got = trace.ranks[rank].values(position)["result"]
            try:
                _compare(got, wanted[rank], what, rank, partial(evidence_of_result, wrong))
            except Finding as finding:
                right = [each for each in members if _fits(trace.ranks[each].values(position)["result"], wanted[each])]
                if right:
                    finding = finding.noting(f"on {ranks_named(right)} it is right")
                of = ExplainedResult(wrong, got, finding.diagnosis.causes)
                told = first_cause(OF_AN_EXPLAINED_RESULT, of)
                raise finding.blaming(told).at(position) from None


def same_bits_everywhere(job: Job, trace: Trace) -> None:
    """A judge: every all-reduce gave all its members the same bits."""
    assertions.completed(trace)
    for position, collective, members in finished(job):
        if isinstance(collective, AllReduce):
            results = [trace.ranks[rank].values(position)["result"] for rank in members]
            assertions.same_on_all_ranks(results, f"{named(collective, position)}: result")


def arguments_are_left_alone(job: Job, trace: Trace) -> None:
    """A judge: no collective changed its argument, and every result is an array of its own."""
    assertions.completed(trace)
    for position, operation in enumerate(job.operations):
        if isinstance(operation, SendRecv):
            for rank in sorted({dest for _, dest in operation.pairs}):
                _kept(trace.ranks[rank].values(position), f"{named(operation, position)} on rank {rank}")
    for position, collective, members in finished(job):
        for rank in members:
            seen = trace.ranks[rank].values(position)
            waited = isinstance(job.operations[position], Wait)
            what = f"{named(collective, position)}{', waited for,' * waited} on rank {rank}"
            assertions.that(
                not seen["argument_changed"],
                f"{what}: its argument was changed, but should stay as it was",
                causes.WORKS_IN_ARGUMENT(),
            )
            assertions.that(
                not seen["aliases_argument"],
                f"{what}: the result shares memory with the argument, but should be a new array",
                causes.RESULT_ALIASES_ARGUMENT(),
            )
            _kept(seen, what)


def results_hold_and_arguments_stay(job: Job, trace: Trace) -> None:
    results_hold(job, trace)
    arguments_are_left_alone(job, trace)


def can_be_written_to(job: Job, trace: Trace) -> None:
    """A judge: the result of a collective is an array that its owner can overwrite."""
    assertions.completed(trace)
    for position, operation in enumerate(job.operations):
        made = job.operations[operation.operation] if isinstance(operation, Wait) else operation
        for rank, record in enumerate(trace.ranks):
            assertions.that(
                not record.values(position).get("read_only"),
                f"{named(made, position)} on rank {rank}: got a read-only result, but should get one to write to",
                causes.RESULT_READ_ONLY(),
            )


def _kept(seen: Mapping[str, Any], what: str) -> None:
    assertions.that(
        not seen.get("overwritten_later"),
        f"{what}: the result was overwritten by a later operation, but should be a new array",
        causes.RESULT_BUFFER_REUSED(),
    )


def _compare(got: Array, want: Want, what: str, rank: int, evidence: Callable[[], Evidence]) -> None:
    """Compare one result. Evidence costs more than the comparison, so it is collected only after a mismatch."""
    if want.bound is None and same_bits(got, want.value):
        return
    try:
        _look(got, want, what, rank, Evidence())
    except Finding:
        _look(got, want, what, rank, evidence())
        raise
    if want.moved and (lost := different_bits(got, want.value) & (want.value == 0)).any():
        raise Finding(
            Diagnosis(
                f"{what} on rank {rank}: got another sign of zero in {int(lost.sum())} of {lost.size} elements, but bits "
                "should be kept",
                (causes.SIGN_OF_ZERO_LOST(),),
            )
        )


def _fits(got: Array, want: Want) -> bool:
    try:
        _compare(got, want, "", 0, Evidence)
    except Finding:
        return False
    return True


def _look(got: Array, want: Want, what: str, rank: int, evidence: Evidence) -> None:
    if want.bound is None:
        assertions.same_array(got, want.value, what, rank, evidence)
    else:
        assertions.within(got, want.value, want.bound, what, rank, evidence)


def _blocked(job: Job, barrier: Barrier, position: int, trace: Trace) -> None:
    """No member may leave before every member has entered."""
    members = members_of(barrier.group, len(trace.ranks))
    records, latest = _entered(trace, members, position)
    for rank in members:
        left, entered = records[rank].left, records[latest].entered
        if left is not None and left < entered:
            waited = left - records[rank].entered
            raise Finding(
                Diagnosis(
                    f"{named(barrier, position)}: rank {rank} left {1000 * (entered - left):.0f} ms before rank {latest} "
                    f"entered, but should have waited for it",
                    all_causes(
                        OF_AN_EARLY_BARRIER,
                        EarlyBarrier(rank, latest, waited, _awaited(job, barrier, rank, position, trace)),
                    ),
                )
            )


def _entered(trace: Trace, members: Sequence[int], position: int) -> tuple[dict[int, Record], int]:
    """The members' records of a barrier, and the member that entered it last."""
    records = {
        rank: next(record for record in trace.ranks[rank].records if record.operation == position) for rank in members
    }
    return records, max(members, key=lambda rank: records[rank].entered)


def _awaited(job: Job, barrier: Barrier, rank: int, position: int, trace: Trace) -> tuple[int, ...]:
    """The ranks that slept before earlier barriers of the same group, and for which this rank waited there."""
    found: set[int] = set()
    for earlier in range(1, position):
        before = job.operations[earlier - 1]
        if job.operations[earlier] == barrier and isinstance(before, Sleep) and before.rank != rank:
            records, latest = _entered(trace, members_of(barrier.group, len(trace.ranks)), earlier)
            if latest == before.rank and (records[rank].left or 0.0) >= records[latest].entered:
                found.add(latest)
    return tuple(sorted(found))


def _received(job: Job, operation: SendRecv, position: int, trace: Trace) -> None:
    """Every receiver must have the sender's array."""
    for source, dest in operation.pairs:
        got = trace.ranks[dest].values(position)["received"][f"{source}>{dest}"]
        what = f"{named(operation, position)}: the message of rank {source}"
        want = Want(operation.tensor.on(source), moved=True)
        wrong = WrongMessage(job, operation, position, source, dest)
        _compare(got, want, what, dest, partial(evidence_of_message, wrong))
