"""Assertions about Traces: each function returns, or raises a Finding that a user can act on.

Headlines read "got X, but should be Y" with the rank and the thing named, one line; the cause comes from diagnosis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .causes.cause import Given, as_causes
from .counted_nouns import ranks_named
from .hypotheses.arrays import Evidence
from .hypotheses.causes_of_wrong_arrays import likely_causes
from .hypotheses.choose_causes import first_cause
from .hypotheses.errors.evidence import FailedRank, group_in_which_it_hangs
from .hypotheses.failed_ranks import Hang, last_words
from .hypotheses.ordered_hypotheses.ranks import OF_A_FAILED_RANK, OF_A_HANG, OF_AN_ERROR
from .hypotheses.ordered_hypotheses.replicas import OF_DIFFERENT_REPLICAS
from .hypotheses.replicas.special_runs import DifferentReplicas
from .job import Job
from .numerics import different_bits, same_bits
from .seeded_values import Array
from .trace import RankTrace, Trace
from .verdict import Diagnosis, Finding

NO_EVIDENCE = Evidence()

Known = Evidence | Callable[[], Evidence]
"""Evidence, or a function that collects it, called only on failure."""


def completed(trace: Trace) -> None:
    """Every rank ran every operation. Otherwise the Finding names the first failed rank, and the positions of all
    others.
    """
    culprit = trace.first_failure
    if culprit is None:
        return
    if culprit.outcome == "hung":
        raise hang(trace)
    verb = {
        "raised": "raised an error in",
        "invalid": "returned a value that the contract does not allow in",
        "died": "died in",
    }[culprit.outcome]
    if culprit.missing:
        verb = "lacks a method for"
    shown = len(culprit.error.strip().splitlines()) > 1  # the headline has the last line
    raise Finding(
        Diagnosis(
            f"rank {culprit.rank} {verb} {_operation(culprit)}: {last_words(culprit)}",
            first_cause(OF_A_FAILED_RANK, culprit),
            "the error below" if shown else "",
            (culprit.error,) if shown else (),
            by_rank=tuple(map(_where, trace.ranks)),
        )
    )


def hang(trace: Trace, group: tuple[int, ...] | None = None) -> Finding:
    """The Finding of a Trace whose first failure is a hang. group: of the operation that hangs."""
    stuck = [rank for rank in trace.ranks if rank.outcome == "hung"]
    in_group = "" if group is None else f" in group {list(group)}"
    return Finding(
        Diagnosis(
            f"{ranks_named([rank.rank for rank in stuck])} hung in {_operation(stuck[0])}{in_group} "
            f"for more than {trace.deadline:g} s, but should have returned",
            first_cause(OF_A_HANG, Hang(trace, group)),
            "the stacks below, and whether all ranks enter the same collectives in the same order; "
            "if ranks are only slow, raise --deadline",
            tuple(_stacks(stuck)),
            by_rank=tuple(map(_where, trace.ranks)),
        ),
        hung=True,
    )


def explained(finding: Finding, job: Job, trace: Trace) -> Finding:
    """The finding of an incomplete Trace, with the likeliest cause in front. If no replica was made yet, the Job's subject
    did not begin, and the error alone is told.
    """
    culprit = trace.first_failure
    if culprit is not None and culprit.without_replica:
        return finding.blaming(() if finding.hung else first_cause(OF_A_FAILED_RANK, culprit))
    if culprit is None or culprit.last is None:
        return finding
    of = FailedRank(finding.diagnosis.causes, culprit, job, trace)
    if finding.hung and (group := group_in_which_it_hangs(of)) is not None:
        finding = hang(trace, group)
        of = replace(of, own=finding.diagnosis.causes)
    if culprit.outcome == "died":
        return finding
    return finding.blaming(first_cause(OF_AN_ERROR, of), of.own)


def _stacks(stuck: Sequence[RankTrace]) -> Iterator[str]:
    """The stacks of hung ranks, one for all ranks at the same place."""
    for stack in dict.fromkeys(rank.stack for rank in stuck if rank.stack):
        yield f"stack of {ranks_named([rank.rank for rank in stuck if rank.stack == stack])}:\n{stack}"


def same_array(got: Any, expected: Array, what: str, rank: int, evidence: Known = NO_EVIDENCE) -> None:
    """Same shape, dtype and bits. `what` names the value ("gradient of fc1.weight, step 2")."""
    array = _same_form(got, expected, what, rank)
    expected = _contiguous(expected)
    if not same_bits(array, expected):
        # -0.0 and +0.0 are equal: x + (-x) gives either, depending on the order of additions
        if array.dtype.kind == "f" and np.array_equal(array, expected, equal_nan=True):
            return
        wrong = different_bits(array, expected) & (array != expected)
        raise _wrong(array, expected, wrong, what, rank, evidence, "")


_NUMBERS = (np.ndarray, np.float64)


def within(got: Any, expected: Array, bound: Array, what: str, rank: int, evidence: Known = NO_EVIDENCE) -> None:
    """Check that |got - expected| <= bound, element by element; `expected` in float64, `bound` derived by the check.

    Elements with an infinite or NaN bound, as in diverging training, are not judged.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        if isinstance(got, _NUMBERS) and got.shape == expected.shape and (abs(got - expected) <= bound).all():
            return  # true for nearly all arrays
        array = _same_form(got, expected, what, rank, dtype=False)
        error = np.abs(array.astype(np.float64) - expected)
    wrong = ~(error <= bound) & np.isfinite(bound)
    if wrong.any():
        where = np.unravel_index(int(np.argmax(np.where(wrong, error - bound, -np.inf))), error.shape)
        note = f" (off by {error[where]:.2g}, rounding allows {np.broadcast_to(bound, error.shape)[where]:.2g})"
        raise _wrong(array, expected.astype(array.dtype), wrong, what, rank, evidence, note)


def same_on_all_ranks(values: Sequence[Any], what: str) -> None:
    """Every rank holds the same bits; None (no gradient) on all ranks is equal too."""
    first = values[0]
    for rank, value in enumerate(values[1:], start=1):
        if (value is None) != (first is None):
            has, has_not = (0, rank) if value is None else (rank, 0)
            raise Finding(Diagnosis(f"{what}: rank {has_not} has none, but rank {has} has one; all ranks should agree"))
        if first is None or same_bits(value, first):
            continue
        if value.shape != first.shape or value.dtype != first.dtype:
            text = f"{what}: rank {rank} has {form(value)}, but rank 0 has {form(first)}"
            raise Finding(Diagnosis(text))
        differ = different_bits(value, first)
        index = _index(differ)
        raise Finding(
            Diagnosis(
                f"{what}{_at(index)}: rank {rank} has {_number(value[index])}, but rank 0 has {_number(first[index])}; "
                f"all ranks should hold the same bits ({int(differ.sum())} of {differ.size} elements differ)",
                first_cause(OF_DIFFERENT_REPLICAS, DifferentReplicas(value, first)),
            )
        )


def equal(got: Any, expected: Any, what: str, rank: int | None = None, cause: Given = ()) -> None:
    """Two plain values are equal; NaN equals NaN, also inside of them."""
    if got != expected and repr(got) != repr(expected):
        who = "" if rank is None else f" on rank {rank}"
        raise Finding(Diagnosis(f"{what}{who}: got {got!r}, but should be {expected!r}", as_causes(cause)))


def that(condition: bool, headline: str, cause: Given = ()) -> None:
    """Any other condition; `headline` holds the got and the expected value."""
    if not condition:
        raise Finding(Diagnosis(headline, as_causes(cause)))


def form(array: Array) -> str:
    """An array's dtype and shape, as in messages."""
    return f"{array.dtype}{list(array.shape)}"


def _same_form(got: Any, expected: Array, what: str, rank: int, *, dtype: bool = True) -> Array:
    if got is None:
        raise Finding(Diagnosis(f"{what} on rank {rank}: got none, but should be {form(expected)}"))
    array = _contiguous(got)
    if array.shape != expected.shape or (dtype and array.dtype != expected.dtype):
        raise Finding(Diagnosis(f"{what} on rank {rank}: got {form(array)}, but should be {form(expected)}"))
    return array


def _contiguous(value: Any) -> Array:
    made: Array = np.ascontiguousarray(value).reshape(np.shape(value))  # ascontiguousarray makes a 0-d array 1-d
    return made


def _wrong(got: Array, expected: Array, wrong: Array, what: str, rank: int, evidence: Known, note: str) -> Finding:
    index = _index(wrong)
    count = f"{int(wrong.sum())} of {wrong.size} elements are wrong"
    return Finding(
        Diagnosis(
            f"{what}{_at(index)} on rank {rank}: got {_number(got[index])}, but should be {_number(expected[index])}"
            f"{note}; {count}",
            likely_causes(got, expected, evidence if isinstance(evidence, Evidence) else evidence()),
        )
    )


def _index(wrong: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(np.flatnonzero(wrong)[0]), wrong.shape)) if wrong.shape else ()


def _at(index: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, index))}]" if index else ""


def _number(value: Any) -> str:
    return repr(value.item()) if hasattr(value, "item") else repr(value)


def _operation(rank: RankTrace) -> str:
    if not rank.last:
        return "start-up"
    operation = f"operation {rank.last.operation} ({rank.last.kind})"
    return f"make_replica(), before {operation}" if rank.without_replica else operation


def _where(rank: RankTrace) -> str:
    return "done" if rank.outcome == "done" else f"{rank.outcome} in {_operation(rank)}"
