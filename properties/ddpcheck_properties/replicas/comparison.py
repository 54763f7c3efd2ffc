"""A Trace against the oracle: bit by bit where sums are exact, within the derived bound elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ddpcheck import expect
from ddpcheck.capabilities import Capabilities
from ddpcheck.diagnosis import Evidence
from ddpcheck.job import Backward, Job, Resume, Step
from ddpcheck.operations.replica import of_two_replicas
from ddpcheck.oracle import NOT_UPDATED, Entry, Moment, Oracle, is_exact
from ddpcheck.trace import Trace
from ddpcheck.values import Array
from ddpcheck.verdict import Diagnosis, Finding

from .circumstances import clipped, dropped, ended, gone, just_done, lateness, loudness, meant, nowhere

_LISTED = 12
_NOUNS = {"gradients": "gradient of", "parameters": "parameter", "buffers": "buffer", "averaged": "average of"}


def as_one_process(
    capabilities: Capabilities, until: float = math.inf, tolerance: float | None = None
) -> Callable[[Job, Trace], None]:
    """The judge of most replica checks: every rank saw what one process would have computed.

    until: how large numbers may become before nothing more is said. tolerance: relative to the largest of what is seen at a
    time, in place of bounds, for models of float64 that have none.
    """

    def judge(job: Job, trace: Trace) -> None:
        expect.completed(trace)
        bounds = tolerance is None and not is_exact(job, capabilities)
        for known in Oracle(job, capabilities, bounds=bounds).walk():
            if not known.within(until):
                return
            moment = known if tolerance is None else known.tolerating(tolerance)
            try:
                compare(moment, job, trace, bits=capabilities.same_bits_on_all_ranks)
            except Finding as finding:
                headline, position = finding.diagnosis.headline, moment.position
                sure = gone(job, position, finding.diagnosis.cause)
                done = just_done(job, position, headline) * (sure == finding.diagnosis.cause)
                around = ended(job, position, sure), loudness(job, headline), meant(sure, capabilities.reduction_dtype)
                raise finding.blaming(done, sure, *around, lateness(job, position)) from None

    return judge


def because(judge: Callable[[Job, Trace], None], cause: str, *, of: str = "") -> Callable[[Job, Trace], None]:
    """The judge, whose findings on what has `of` in its name also tell what else may be their cause."""

    def explained(job: Job, trace: Trace) -> None:
        try:
            judge(job, trace)
        except Finding as finding:
            if not trace.completed or of not in finding.diagnosis.headline:
                raise
            raise finding.blaming(*finding.diagnosis.causes, cause) from None

    return explained


def compare(moment: Moment, job: Job, trace: Trace, *, bits: bool = True) -> None:
    """One operation of a finished Trace against what it must have yielded; `bits`: synchronised arrays agree bit by
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
            expect.within(np.float64(got), value.exact[rank], bound, what, rank, known)
    for what, entries in moment.arrays.items():
        compare_arrays(trace.values(moment.position, what), entries, what, time, bits=bits)
    for rank in moment.promised:
        outputs = moment.outputs[rank]
        got = trace.values(moment.position, "outputs")[rank]
        error = np.zeros(()) if outputs.error is None else outputs.error
        what, evidence = f"prediction ({time})", Evidence(otherwise=_BEFORE["predict"])
        expect.within(got, outputs.exact, error, what, rank, evidence)


def _loaded_before(job: Job, position: int) -> bool:
    """Whether a state was loaded before this operation, and nothing was trained since."""
    telling = [operation for operation in job.operations[:position] if isinstance(operation, Resume | Backward)]
    return bool(telling) and isinstance(telling[-1], Resume)


def _known(moment: Moment, expected: Array, rank: int, all_got: list[float], job: Job) -> Evidence:
    """What explains a number explains those of all ranks, or it is chance.

    Numbers come as Python floats, and were computed in the model's dtype: 1e-5 is near enough.
    """
    size, got = len(expected), all_got[rank]
    known = [*moment.known()]
    if size > 1:
        known.append((f"exactly {size} x too large at world size {size}: summed, not averaged", expected * size))
    alternatives = tuple(
        (sentence, np.asarray(got))
        for sentence, numbers in known
        if all(math.isclose(a, b, rel_tol=1e-5) for a, b in zip(all_got, numbers, strict=True))
        and not math.isclose(expected[rank], numbers[rank], rel_tol=1e-5)
    )
    if isinstance(moment.operation, Backward):
        weights = moment.operation.weights_on(rank)
        if not moment.operation.samples[rank] or (weights is not None and not any(weights)):
            alternatives += ((_EMPTY if weights is None else _MASKED, np.array(np.nan)),)
    sure = _BEFORE.get(moment.operation.kind, "")
    if moment.operation.kind == "backward" and _loaded_before(job, moment.position):
        sure = f"not all of the state that was loaded before it is there on this rank; {sure}"
    if isinstance(moment.operation, Backward) and moment.operation.weights:
        sure = f"its samples' weights are others: an earlier batch's, or in other places, or changed; or {sure}"
    if moment.operation.kind == "backward" and abs(got - expected[rank]) < _FEW_BITS * abs(expected[rank]):
        sure = f"it is near: computed with fewer bits (autocast, say); or {sure}"
    if moment.operation.kind == "clip" and math.isfinite(got):
        sure = _TOO_LARGE if got > expected[rank] else _TOO_SMALL
        if expected[rank] < got <= math.sqrt(size) * expected[rank] * (1 + 1e-5):
            sure += _ADDED_UP
        factor = got / expected[rank] if expected[rank] else 0.0
        if factor >= 4 and math.isclose(factor, 2 ** round(math.log2(factor)), rel_tol=1e-5):
            sure = f"exactly {factor:.0f} x too large: of gradients that a loss scale still multiplies"
        if size > 1 and math.isclose(math.hypot(*all_got), expected[rank], rel_tol=1e-5):
            sure = _SHARD
    return Evidence(alternatives=alternatives, precision=False, otherwise=sure)


_FEW_BITS = 2.0**-7
_EMPTY = "a mean over no samples is 0 divided by 0, but this rank's should be 0"
_MASKED = "a mean over samples whose weights add up to 0 is 0 divided by 0, but this rank's should be 0"
_SHARD = (
    "it is the norm of this rank's shard of the gradients: the ranks' squares add up to the whole, but were not added"
)
_TOO_LARGE = (
    "too large: it is also taken of what is no gradient (a bucket's padding), a gradient counts twice, or squares round"
)
_ADDED_UP = ", or the norms of the ranks' shards were added up, and not the squares of them"
_TOO_SMALL = "too small: a part of the gradients is missing from it, or squares are rounded"


_BEFORE = {
    "backward": "a loss comes before any reduction: the parameters or buffers that this rank computed it with are wrong, or not "
    "all of its samples went into it",
    "predict": "the parameters or buffers that this rank predicted with are wrong, or it did not evaluate its own batch",
}
"""Where the fault lies in any case."""


def compare_arrays(
    got: list[Mapping[str, Any]], entries: Mapping[str, Entry], what: str, time: str, *, bits: bool = True
) -> None:
    """What every rank shows by name. The Finding is that of the first wrong array, one that is not zero if there is one,
    as zeros tell little; its details name all that are wrong.
    """
    first: Finding | None = None
    zero, named_first = True, ""
    wrong: dict[str, list[int]] = {}
    for name, entry in entries.items():
        text = f"{_NOUNS.get(what, what)} {name} ({time})"
        kept = _UNCHANGED if what == "parameters" and entry.made_of is None else ""
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
    causes = [first.diagnosis.cause]
    if what == "gradients":
        causes = [nowhere(got, entries) or first.diagnosis.cause]
        causes.append(clipped(got[min(wrong[named_first])], causes[0]))
    if what == "parameters" and bits and not first.diagnosis.cause:
        causes.append(_apart(got, entries, wrong))
    right = [rank for rank in entries[named_first].ranks if rank not in wrong[named_first]]
    if right and first.diagnosis.cause.endswith(NOT_UPDATED):
        causes.append(f"on rank {', '.join(map(str, right))} it was, {_NOT_SHARED}")
    named = [f"{name} (rank {', '.join(map(str, ranks))})" for name, ranks in wrong.items()]
    listed = ", ".join(named[:_LISTED] + ["..."] * (len(named) > _LISTED))
    note = f"wrong are {len(wrong)} of {len(entries)} {what}: {listed}"
    raise first.noting(note).blaming(*causes)


_NOT_SHARED = "and that update is not shared with all ranks, or not waited for"


def _apart(got: list[Mapping[str, Any]], entries: Mapping[str, Entry], wrong: Mapping[str, list[int]]) -> str:
    """What is sure of parameters that are wrong, should be the same on all ranks, and are not."""
    for name in wrong:
        shown = [np.asarray(got[rank].get(name)) for rank in entries[name].ranks]
        if entries[name].alike and not all(np.array_equal(array, shown[0]) for array in shown):
            return "the ranks have different values: something of a rank's own, as its local gradient, goes into the update"
    return ""


_NO_ZERO = "no rank used it, but zeros are promised for such, or were asked for: a step takes them, and moves it"
_UNCHANGED = (
    "construction left another value here (it is to be rank 0's, unless promised otherwise), or something changed it"
)


def _compare_one(got: Any, entry: Entry, text: str, rank: int, otherwise: str = "", *, explained: bool = True) -> None:
    """otherwise: what is sure if nothing else explains it. explained: with a cause, which of hundreds of arrays takes minutes."""
    presence = entry.presence[rank]
    if got is None or presence == "none":
        if got is None and presence == "there":
            raise Finding(
                Diagnosis(
                    f"{text} on rank {rank}: got none, but should be an array",
                    _NO_ZERO if entry.made_of is None else dropped(entry),
                )
            )
        if got is not None:
            zero = "zero" if not np.any(got) else f"an array (first element {np.ravel(got)[0]!r})"
            raise Finding(
                Diagnosis(
                    f"{text} on rank {rank}: got {zero}, but should be none: no rank used it since zero_grad, or it is frozen",
                    "a zero gradient in place of none lets weight decay and momentum move the parameter",
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
    """Where in the training an operation stands, in a reader's words."""
    until = list(of_two_replicas(job.operations[: position + 1]))
    here, _ = until[-1]
    done = [operation for replica, operation in until if replica == here]
    backwards, steps = (sum(isinstance(operation, kind) for operation in done) for kind in (Backward, Step))
    whose = ", one of two replicas" if len(done) < len(until) else ""
    return f"operation {position}{whose}, after {_count(backwards, 'backward')} and {_count(steps, 'step')}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number != 1)
