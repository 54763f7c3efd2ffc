"""A Trace against the oracle: bit by bit where sums are exact, within the derived bound elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ddpcheck import assertions
from ddpcheck.causes import Cause, programs, updates
from ddpcheck.contract import Capabilities, Determinism
from ddpcheck.hypotheses.arrays import Evidence
from ddpcheck.hypotheses.evidence import evidence_of
from ddpcheck.hypotheses.numbers import evidence_of_number, sure_after
from ddpcheck.hypotheses.programs import (
    apart,
    clipped,
    dropped,
    ended,
    gone,
    idleness,
    just_done,
    lateness,
    loudness,
    meant,
    nowhere,
    whole_and_part,
)
from ddpcheck.job import Backward, Job, Step
from ddpcheck.operations.replica import of_two_replicas
from ddpcheck.oracle import ExpectedArray, ExpectedOperation, Oracle, is_exact
from ddpcheck.trace import Trace
from ddpcheck.verdict import Diagnosis, Finding

_LISTED = 12
_NOUNS = {"gradients": "gradient of", "parameters": "parameter", "buffers": "buffer", "averaged": "average of"}


def as_one_process(
    capabilities: Capabilities, until: float = math.inf, tolerance: float | None = None
) -> Callable[[Job, Trace], None]:
    """The judge of most replica checks: every rank has the values that one process would have computed.

    until: the size of numbers beyond which nothing is compared. tolerance: relative to the largest value observed at a time,
    in place of bounds, for float64 models that have none.
    """

    def judge(job: Job, trace: Trace) -> None:
        assertions.completed(trace)
        bounds = tolerance is None and not is_exact(job, capabilities)
        for known in Oracle(job, capabilities, bounds=bounds).walk():
            if not known.within(until):
                return
            moment = known if tolerance is None else known.tolerating(tolerance)
            try:
                compare(moment, job, trace, bits=(capabilities.world.determinism >= Determinism.BETWEEN_RANKS))
            except Finding as finding:
                position, (kind, _) = moment.position, finding.diagnosis.subject
                sure = gone(job, position, finding.diagnosis.causes)
                done = just_done(job, position, kind) if sure == finding.diagnosis.causes else None
                around = (
                    ended(job, position, sure),
                    loudness(job, kind),
                    meant(sure, capabilities.replica.reduction_dtype),
                )
                found = finding.blaming(done, sure, *around, lateness(job, position))
                raise found.blaming(found.diagnosis.causes or idleness(job, position)).at(position) from None

    return judge


def because(
    judge: Callable[[Job, Trace], None], cause: Cause, *, kind: str = "", name: str = ""
) -> Callable[[Job, Trace], None]:
    """The judge, whose findings on this kind of value, or on the value of this name, also name this cause."""

    def explained(job: Job, trace: Trace) -> None:
        try:
            judge(job, trace)
        except Finding as finding:
            wrong, which = finding.diagnosis.subject
            if not trace.completed or kind not in ("", wrong) or name not in ("", which):
                raise
            raise finding.blaming(*finding.diagnosis.causes, cause) from None

    return explained


def compare(moment: ExpectedOperation, job: Job, trace: Trace, *, bits: bool = True) -> None:
    """One operation of a finished Trace against its expected results; `bits`: synchronised arrays agree bit by
    bit.
    """
    if not moment.numbers and not moment.arrays and not moment.promised:
        return
    time = when(job, moment.position)
    for name, value in moment.numbers.items():
        all_got = trace.values(moment.position, name)
        for rank, got in enumerate(all_got):
            bound = np.zeros(()) if value.error is None else value.error[rank]
            what = f"{name} of {moment.operation.kind} ({time})"
            known = partial(evidence_of_number, moment, value.exact, rank, all_got, job)
            try:
                assertions.within(np.float64(got), value.exact[rank], bound, what, rank, known)
            except Finding as finding:
                raise finding.about(name) from None
    for what, entries in moment.arrays.items():
        compare_arrays(trace.values(moment.position, what), entries, what, time, bits=bits)
    for rank in moment.promised:
        outputs = moment.outputs[rank]
        got = trace.values(moment.position, "outputs")[rank]
        error = np.zeros(()) if outputs.error is None else outputs.error
        sure = sure_after(programs.WRONG_PREDICTION_VALUES(), job, moment.position)
        what, evidence = f"prediction ({time})", Evidence(otherwise=sure)
        assertions.within(got, outputs.exact, error, what, rank, evidence)


def compare_arrays(
    got: list[Mapping[str, Any]], entries: Mapping[str, ExpectedArray], what: str, time: str, *, bits: bool = True
) -> None:
    """Compare every rank's arrays by name. The Finding is that of the first wrong array, preferably one that is not zero;
    its details name all wrong arrays.
    """
    first: Finding | None = None
    zero, named_first = True, ""
    wrong: dict[str, list[int]] = {}
    for name, entry in entries.items():
        text = f"{_NOUNS.get(what, what)} {name} ({time})"
        kept = (programs.CONSTRUCTION_VALUE(),) * (what == "parameters" and entry.made_of is None)
        for rank in entry.ranks:
            telling = first is None or (zero and bool(np.any(got[rank].get(name))))
            try:
                _compare_one(got[rank].get(name), entry, text, rank, kept, explained=telling)
            except Finding as finding:
                if telling:
                    first, zero, named_first = finding, not np.any(got[rank].get(name)), name
                wrong.setdefault(name, []).append(rank)
        if first is None and bits and entry.alike and entry.ranks and len(set(entry.presence)) == 1:
            assertions.same_on_all_ranks([got[rank].get(name) for rank in entry.ranks], text)
    if first is None:
        return
    causes: list[Cause | None] = [*first.diagnosis.causes]
    if what == "gradients":
        missing = nowhere(got, entries)
        causes = [missing] if missing else causes
        causes = whole_and_part(causes, got, entries, named_first, wrong)
        causes.append(clipped(got[min(wrong[named_first])], first.diagnosis.cause))
    if what == "parameters" and bits and not first.diagnosis.causes:
        causes.append(apart(got, entries, wrong))
    right = tuple(rank for rank in entries[named_first].ranks if rank not in wrong[named_first])
    if right and updates.NOT_UPDATED.explains(first.diagnosis.causes):
        causes.append(programs.UPDATE_NOT_SHARED(ranks=right))
    named = [f"{name} (rank {', '.join(map(str, ranks))})" for name, ranks in wrong.items()]
    listed = ", ".join(named[:_LISTED] + ["..."] * (len(named) > _LISTED))
    note = f"wrong are {len(wrong)} of {len(entries)} {what}: {listed}"
    raise first.noting(note).about(what, named_first).blaming(*causes)


def _compare_one(
    got: Any, entry: ExpectedArray, text: str, rank: int, otherwise: tuple[Cause, ...] = (), *, explained: bool = True
) -> None:
    """otherwise: causes that hold if nothing else explains it. explained: search for a cause, which takes minutes for
    hundreds of arrays.
    """
    presence = entry.presence[rank]
    if got is None or presence == "none":
        if got is None and presence == "there":
            raise Finding(
                Diagnosis(
                    f"{text} on rank {rank}: got none, but should be an array",
                    (programs.ZEROS_FOR_UNUSED() if entry.made_of is None else dropped(entry),),
                )
            )
        if got is not None:
            zero = "zero" if not np.any(got) else f"an array (first element {np.ravel(got)[0]!r})"
            raise Finding(
                Diagnosis(
                    f"{text} on rank {rank}: got {zero}, but should be none: no rank used it since zero_grad, or it is frozen",
                    (programs.ZERO_FOR_NONE(),),
                )
            )
        return
    exact = entry.value.exact[rank]

    def evidence() -> Evidence:
        if not explained:
            return assertions.NO_EVIDENCE
        found = evidence_of(entry, rank)
        bound = None if entry.value.error is None else np.asarray(entry.value.error[rank])
        return replace(found, otherwise=found.otherwise or otherwise, bound=bound)

    if entry.value.error is None or exact.dtype.kind == "i":
        expected = exact.astype(entry.dtype)
        if not (isinstance(got, np.ndarray) and got.dtype == expected.dtype and np.array_equal(got, expected)):
            assertions.same_array(got, expected, text, rank, evidence)
        return
    if isinstance(got, np.ndarray) and got.dtype != entry.dtype:
        raise Finding(Diagnosis(f"{text} on rank {rank}: got dtype {got.dtype}, but should be {entry.dtype}"))
    assertions.within(got, exact, entry.value.error[rank], text, rank, evidence)


def when(job: Job, position: int) -> str:
    """The place of an operation in the training, for messages."""
    until = list(of_two_replicas(job.operations[: position + 1]))
    here, _ = until[-1]
    done = [operation for replica, operation in until if replica == here]
    backwards, steps = (sum(isinstance(operation, kind) for operation in done) for kind in (Backward, Step))
    whose = ", one of two replicas" if len(done) < len(until) else ""
    return f"operation {position}{whose}, after {_count(backwards, 'backward')} and {_count(steps, 'step')}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number != 1)
