"""Compares a Trace with the oracle: bit by bit if sums are exact, otherwise within the derived bound."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ddpcheck import assertions
from ddpcheck.causes import Cause, programs
from ddpcheck.contract import Capabilities
from ddpcheck.counted_nouns import counted, ranks_named
from ddpcheck.hypotheses.arrays import Evidence
from ddpcheck.hypotheses.causes_of_observations import causes_in_job, causes_of_arrays
from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.evidence import evidence_of
from ddpcheck.hypotheses.losses import REPORTED_ONLY
from ddpcheck.hypotheses.numbers import evidence_of_number, sure_after
from ddpcheck.hypotheses.observed_arrays import MissingGradient, WrongArrays, construction_value
from ddpcheck.hypotheses.ordered_hypotheses.arrays import OF_A_MISSING_GRADIENT
from ddpcheck.hypotheses.programs import WrongInJob
from ddpcheck.job import Backward, Job, Step
from ddpcheck.operations.replica import of_two_replicas
from ddpcheck.oracle import ExpectedArray, ExpectedOperation, Oracle, is_exact
from ddpcheck.oracle.bounded_values import Value
from ddpcheck.seeded_values import Array
from ddpcheck.trace import Trace
from ddpcheck.verdict import Diagnosis, Finding

if TYPE_CHECKING:
    from ..judges import Judge

_LISTED = 12
_OTHERS = 3
"""Further wrong arrays that are explained, to choose between causes of the first one."""
_NOUNS = {"gradients": "gradient of", "parameters": "parameter", "buffers": "buffer", "averaged": "average of"}


def as_one_process(capabilities: Capabilities, until: float = math.inf, tolerance: float | None = None) -> Judge:
    """The judge of most replica checks: every rank has the values that one process would have computed.

    A loss that is wrong only in the report is told if all else is right. until: numbers above this size are not
    compared. tolerance: relative to the largest value of an observation, in place of bounds, for float64 models without
    bounds.
    """

    def judge(job: Job, trace: Trace) -> None:
        assertions.completed(trace)
        bounds = tolerance is None and not is_exact(job, capabilities)
        misreported: Finding | None = None
        for known in Oracle(job, capabilities, bounds=bounds).walk():
            if not known.within(until):
                break
            moment = known if tolerance is None else known.tolerating(tolerance)
            try:
                compare(moment, job, trace, bits=capabilities.world.equal_bits_on_ranks)
            except Finding as finding:
                found = placed(finding, job, moment.position, capabilities)
                if not _is_misreported(found):
                    raise found from None
                misreported = misreported or found
        if misreported is not None:
            raise misreported

    return judge


def placed(finding: Finding, job: Job, position: int, capabilities: Capabilities) -> Finding:
    """The finding at this operation, with the causes that the operations before it suggest."""
    told = finding.diagnosis
    of = WrongInJob(job, position, told.subject[0], told.causes, capabilities.replica.reduction_dtype)
    return finding.blaming(causes_in_job(of)).at(position)


def _is_misreported(finding: Finding) -> bool:
    """Whether a loss is wrong only in the report, so that gradients may be right."""
    cause = finding.diagnosis.cause
    return cause is not None and cause.id in REPORTED_ONLY


def ended_inside(finding: Finding) -> Finding:
    """The same finding on a Job that passes without its operations inside no_sync(): those that end it are the cause."""
    ended = [cause for cause in finding.diagnosis.causes if programs.WINDOW_ENDED_BY.explains((cause,))]
    return finding.blaming(*ended, *finding.diagnosis.causes)


def compare(moment: ExpectedOperation, job: Job, trace: Trace, *, bits: bool = True) -> None:
    """One operation of a finished Trace against its expected results; `bits`: synchronised arrays agree bit by
    bit.
    """
    if not moment.numbers and not moment.arrays and not moment.promised:
        return
    time = when(job, moment.position)
    for name, value in moment.numbers.items():
        _compare_numbers(moment, name, value, trace.values(moment.position, name), job, time)
    for what, entries in moment.arrays.items():
        compare_arrays(trace.values(moment.position, what), entries, what, time, bits=bits)
    for rank in moment.promised:
        _compare_prediction(moment, rank, trace.values(moment.position, "outputs")[rank], job, time)


def _compare_numbers(
    moment: ExpectedOperation, name: str, value: Value, of_ranks: list[float], job: Job, time: str
) -> None:
    what = f"{name} of {moment.operation.kind} ({time})"
    for rank, got in enumerate(of_ranks):
        bound = np.zeros(()) if value.error is None else value.error[rank]
        evidence = partial(evidence_of_number, moment, value.exact, rank, of_ranks, job)
        try:
            assertions.within(np.float64(got), value.exact[rank], bound, what, rank, evidence)
        except Finding as finding:
            raise finding.about(name) from None


def _compare_prediction(moment: ExpectedOperation, rank: int, got: Array, job: Job, time: str) -> None:
    outputs = moment.outputs[rank]
    error = np.zeros(()) if outputs.error is None else outputs.error
    sure = sure_after(programs.WRONG_PREDICTION_VALUES(), job, moment.position)
    # slightly wrong statistics give nearly right predictions, in all bits
    statistics = job.model is not None and "batch_norm" in job.model.features()
    evidence = Evidence(otherwise=sure, precision=not statistics)
    assertions.within(got, outputs.exact, error, f"prediction ({time})", rank, evidence)


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
        for rank in entry.ranks:
            telling = first is None or (zero and bool(np.any(got[rank].get(name))))
            try:
                _compare_one(got[rank].get(name), entry, what, text, rank, explained=telling)
            except Finding as finding:
                if telling:
                    first, zero, named_first = finding, not np.any(got[rank].get(name)), name
                wrong.setdefault(name, []).append(rank)
        if first is None and bits and entry.alike and entry.ranks and len(set(entry.presence)) == 1:
            assertions.same_on_all_ranks([got[rank].get(name) for rank in entry.ranks], text)
    if first is None:
        return
    of = WrongArrays(what, got, entries, wrong, named_first, first.diagnosis.causes, bits)
    of = replace(of, told=_as_other_arrays_tell(of))
    named = [f"{name} ({ranks_named(ranks)})" for name, ranks in wrong.items()]
    listed = ", ".join(named[:_LISTED] + ["..."] * (len(named) > _LISTED))
    note = f"wrong {'is' if len(wrong) == 1 else 'are'} {len(wrong)} of {len(entries)} {what}: {listed}"
    raise first.noting(note).about(what, named_first).blaming(causes_of_arrays(of))


def _as_other_arrays_tell(of: WrongArrays) -> tuple[Cause, ...]:
    """The causes of the first wrong array. If its likeliest may fit by chance, those that fit other wrong arrays come
    first.
    """
    if len(of.told) < 2 or of.told[0].certainty != "possible":
        return of.told
    others = [(of.got[ranks[0]].get(name), name, ranks[0]) for name, ranks in of.wrong.items() if name != of.name]
    telling = [each for each in others if np.any(each[0])][:_OTHERS]
    kinds = Counter(
        kind for array, name, rank in telling for kind in _kinds_of_causes(array, of.entries[name], of.what, rank)
    )
    return tuple(sorted(of.told, key=lambda cause: -kinds[cause.id]))


def _kinds_of_causes(got: Any, entry: ExpectedArray, what: str, rank: int) -> set[str]:
    """The ids of all causes of a wrong array."""
    try:
        _compare_one(got, entry, what, what, rank)
    except Finding as finding:
        return {cause.id for cause in finding.diagnosis.causes}
    return set()


def _compare_one(got: Any, entry: ExpectedArray, what: str, text: str, rank: int, *, explained: bool = True) -> None:
    """explained: search for a cause, which takes minutes for hundreds of arrays."""
    presence = entry.presence[rank]
    if got is None or presence == "none":
        _compare_presence(got, entry, f"{text} on rank {rank}", missing=presence == "there")
        return
    exact = entry.value.exact[rank]

    def evidence() -> Evidence:
        if not explained:
            return assertions.NO_EVIDENCE
        found = evidence_of(entry, rank)
        bound = None if entry.value.error is None else np.asarray(entry.value.error[rank])
        return replace(found, otherwise=found.otherwise or construction_value(what, entry), bound=bound)

    if entry.value.error is None or exact.dtype.kind == "i":
        expected = exact.astype(entry.dtype)
        if not (isinstance(got, np.ndarray) and got.dtype == expected.dtype and np.array_equal(got, expected)):
            assertions.same_array(got, expected, text, rank, evidence)
        return
    if isinstance(got, np.ndarray) and got.dtype != entry.dtype:
        raise Finding(Diagnosis(f"{text} on rank {rank}: got dtype {got.dtype}, but should be {entry.dtype}"))
    assertions.within(got, exact, entry.value.error[rank], text, rank, evidence)


def _compare_presence(got: Any, entry: ExpectedArray, text: str, *, missing: bool) -> None:
    """A gradient that is none, or should be. missing: it is none, and should be an array."""
    if missing:
        causes = first_cause(OF_A_MISSING_GRADIENT, MissingGradient(entry, evidence_of(entry, 0).parts))
        raise Finding(Diagnosis(f"{text}: got none, but should be an array", causes))
    if got is not None:
        zero = "zero" if not np.any(got) else f"an array (first element {np.ravel(got)[0]!r})"
        headline = f"{text}: got {zero}, but should be none: no rank used it since zero_grad, or it is frozen"
        raise Finding(Diagnosis(headline, (programs.ZERO_FOR_NONE(),)))


def when(job: Job, position: int) -> str:
    """The position of an operation in the training, for messages."""
    until = list(of_two_replicas(job.operations[: position + 1]))
    here, _ = until[-1]
    done = [operation for replica, operation in until if replica == here]
    backwards, steps = (sum(isinstance(operation, kind) for operation in done) for kind in (Backward, Step))
    whose = ", one of two replicas" if len(done) < len(until) else ""
    return f"operation {position}{whose}, after {counted(backwards, 'backward')} and {counted(steps, 'step')}"
