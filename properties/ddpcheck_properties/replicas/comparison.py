"""A Trace against the oracle: bit by bit where sums are exact, within the derived bound elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ddpcheck import expect
from ddpcheck.causes import Cause, programs, updates, values
from ddpcheck.contract import Capabilities, Determinism
from ddpcheck.diagnosis import Evidence
from ddpcheck.job import Backward, Clip, Job, Observe, Operation, Predict, Resume, Save, Step, ZeroGrad
from ddpcheck.operations.replica import of_two_replicas
from ddpcheck.oracle import ExpectedArray, ExpectedOperation, Oracle, is_exact
from ddpcheck.seeded_values import Array
from ddpcheck.trace import Trace
from ddpcheck.verdict import Diagnosis, Finding

from .hypotheses import (
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
        expect.completed(trace)
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
            known = partial(_known, moment, value.exact, rank, all_got, job)
            try:
                expect.within(np.float64(got), value.exact[rank], bound, what, rank, known)
            except Finding as finding:
                raise finding.about(name) from None
    for what, entries in moment.arrays.items():
        compare_arrays(trace.values(moment.position, what), entries, what, time, bits=bits)
    for rank in moment.promised:
        outputs = moment.outputs[rank]
        got = trace.values(moment.position, "outputs")[rank]
        error = np.zeros(()) if outputs.error is None else outputs.error
        sure = _sure_after(programs.WRONG_PREDICTION_VALUES(), job, moment.position)
        what, evidence = f"prediction ({time})", Evidence(otherwise=sure)
        expect.within(got, outputs.exact, error, what, rank, evidence)


_LOOK = (Observe, Predict, Save, ZeroGrad)
"""Operations that do not change parameters and running statistics."""


def _sure_after(cause: Cause, job: Job, position: int, *harmless: type[Operation]) -> Cause:
    """The cause, likely if only these operations and observations came before: no earlier mistake can show in it."""
    alone = all(isinstance(operation, (*_LOOK, *harmless)) for operation in job.operations[:position])
    return cause.but("likely" if alone else "possible")


def _observed(job: Job, position: int) -> bool:
    """Whether gradients were observed since the last backward, and were right: the comparison ends with the first mistake."""
    telling = [operation for operation in job.operations[:position] if isinstance(operation, Observe | Backward)]
    return bool(telling) and isinstance(telling[-1], Observe)


def _loaded_before(job: Job, position: int) -> bool:
    """Whether a state was loaded before this operation, and nothing was trained since."""
    telling = [operation for operation in job.operations[:position] if isinstance(operation, Resume | Backward)]
    return bool(telling) and isinstance(telling[-1], Resume)


def _known(moment: ExpectedOperation, expected: Array, rank: int, all_got: list[float], job: Job) -> Evidence:
    """An explanation of one rank's number must explain those of all ranks, or it is chance.

    Numbers are Python floats computed in the model's dtype: 1e-5 is near enough.
    """
    size, got = len(expected), all_got[rank]
    known = [*moment.known()]
    if size > 1:
        known.append((values.SUMMED_NOT_AVERAGED(world_size=size), expected * size))
    alternatives = tuple(
        (cause, np.asarray(got))
        for cause, numbers in known
        if all(math.isclose(a, b, rel_tol=1e-5) for a, b in zip(all_got, numbers, strict=True))
        and not math.isclose(expected[rank], numbers[rank], rel_tol=1e-5)
    )
    if isinstance(moment.operation, Backward):
        weights = moment.operation.weights_on(rank)
        if not moment.operation.samples[rank] or (weights is not None and not any(weights)):
            kind = programs.MEAN_OF_NO_SAMPLES if weights is None else programs.MEAN_OF_NO_WEIGHT
            alternatives += ((kind(), np.array(np.nan)),)
    sure: tuple[Cause, ...] = ()
    if isinstance(moment.operation, Backward):
        near = abs(got - expected[rank]) < _FEW_BITS * abs(expected[rank])
        sure = (
            *(programs.NEARLY_RIGHT(),) * bool(near),
            *(programs.OTHER_SAMPLE_WEIGHTS(),) * bool(moment.operation.weights),
            *(programs.STATE_INCOMPLETE(),) * _loaded_before(job, moment.position),
            _sure_after(programs.WRONG_FORWARD_VALUES(), job, moment.position, Backward, Clip),
        )
    if moment.operation.kind == "clip" and math.isfinite(got):
        wrong = (programs.NORM_TOO_LARGE if got > expected[rank] else programs.NORM_TOO_SMALL)()
        sure = (wrong.but("likely" if _observed(job, moment.position) else "possible"),)
        if expected[rank] < got <= math.sqrt(size) * expected[rank] * (1 + 1e-5):
            sure += (programs.NORMS_OF_SHARDS_ADDED(),)
        factor = got / expected[rank] if expected[rank] else 0.0
        if factor >= 4 and math.isclose(factor, 2 ** round(math.log2(factor)), rel_tol=1e-5):
            sure = (programs.NORM_OF_SCALED(factor=float(factor)),)
        if size > 1 and math.isclose(math.hypot(*all_got), expected[rank], rel_tol=1e-5):
            sure = (programs.NORM_OF_SHARD(),)
    return Evidence(alternatives=alternatives, precision=False, otherwise=sure)


_FEW_BITS = 2.0**-7


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
            expect.same_on_all_ranks([got[rank].get(name) for rank in entry.ranks], text)
    if first is None:
        return
    causes: list[Cause | None] = [*first.diagnosis.causes]
    if what == "gradients":
        missing = nowhere(got, entries)
        causes = [missing] if missing else causes
        causes = whole_and_part(causes, got, entries, named_first, wrong)
        causes.append(clipped(got[min(wrong[named_first])], first.diagnosis.cause))
    if what == "parameters" and bits and not first.diagnosis.causes:
        causes.append(_apart(got, entries, wrong))
    right = tuple(rank for rank in entries[named_first].ranks if rank not in wrong[named_first])
    if right and updates.NOT_UPDATED.explains(first.diagnosis.causes):
        causes.append(programs.UPDATE_NOT_SHARED(ranks=right))
    named = [f"{name} (rank {', '.join(map(str, ranks))})" for name, ranks in wrong.items()]
    listed = ", ".join(named[:_LISTED] + ["..."] * (len(named) > _LISTED))
    note = f"wrong are {len(wrong)} of {len(entries)} {what}: {listed}"
    raise first.noting(note).about(what, named_first).blaming(*causes)


def _apart(
    got: list[Mapping[str, Any]], entries: Mapping[str, ExpectedArray], wrong: Mapping[str, list[int]]
) -> Cause | None:
    """The certain facts about wrong parameters that differ between ranks."""
    for name in wrong:
        shown = [np.asarray(got[rank].get(name)) for rank in entries[name].ranks]
        if entries[name].alike and not all(np.array_equal(array, shown[0]) for array in shown):
            return programs.OWN_VALUE_IN_UPDATE()
    return None


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
            return expect.NO_EVIDENCE
        found = entry.evidence(rank)
        bound = None if entry.value.error is None else np.asarray(entry.value.error[rank])
        return replace(found, otherwise=found.otherwise or otherwise, bound=bound)

    if entry.value.error is None or exact.dtype.kind == "i":
        expected = exact.astype(entry.dtype)
        if not (isinstance(got, np.ndarray) and got.dtype == expected.dtype and np.array_equal(got, expected)):
            expect.same_array(got, expected, text, rank, evidence)
        return
    if isinstance(got, np.ndarray) and got.dtype != entry.dtype:
        raise Finding(Diagnosis(f"{text} on rank {rank}: got dtype {got.dtype}, but should be {entry.dtype}"))
    expect.within(got, exact, entry.value.error[rank], text, rank, evidence)


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
