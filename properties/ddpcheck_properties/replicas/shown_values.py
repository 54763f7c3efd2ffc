"""Operations judged by the values that the ranks showed before them.

So a known mistake hides no other: its wrong values are taken as they are, and later operations must follow from them.
Where a correct implementation may decide, as with gradients that differ between ranks, only causes that explain a value
are told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ddpcheck import assertions
from ddpcheck.contract import Capabilities
from ddpcheck.hypotheses.causes_of_observations import causes_in_job
from ddpcheck.hypotheses.programs import WrongInJob
from ddpcheck.job import Backward, Job, Join, Observe, Operation, Resume
from ddpcheck.operations.replica import of_two_replicas
from ddpcheck.oracle import ExpectedArray, ExpectedOperation, Oracle
from ddpcheck.running.implied_causes import adds_to
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from ..drawing import Further, Judge, within_promises
from .comparison import compare

if TYPE_CHECKING:
    from ddpcheck.session import Session

_LOOK = Observe(("gradients", "parameters", "buffers"))
_NOTE = (
    "a second mistake: each operation is judged by the values shown before it, because other checks tell the cause of the "
    "first. A replay judges the whole Job, and shows the first."
)


def looking_everywhere(job: Job, promised: Capabilities) -> Job | None:
    """The Job, observed after every operation; None if it cannot be judged by shown values."""
    alone = all(replica == 0 for replica, _ in of_two_replicas(job.operations))
    if job.model is None or not alone or any(isinstance(each, Join) for each in job.operations):
        return None
    done = (each for each in job.operations if not isinstance(each, Observe))
    looking = (looked for operation in done for looked in (operation, _LOOK))
    return within_promises(replace(job, operations=(_LOOK, *looking)), promised)


def by_shown_values(session: Session) -> Further:
    """Judges every operation of a Job by the values that the ranks showed before it, and raises the first Finding whose
    cause no other check has told. Gradients after a backward are not judged if the told cause is one of wrong gradients.
    """

    def judge(told: Finding) -> Judge:
        of_gradients = told.diagnosis.subject[0] == "gradients"

        def raise_other(job: Job, trace: Trace) -> None:
            assertions.completed(trace)
            for finding in wrong_operations(job, trace, session.capabilities, backward=not of_gradients):
                if adds_to(session.told, finding.diagnosis.causes):
                    raise finding.noting(_NOTE)

        return raise_other

    return Further(looking_everywhere, judge)


def wrong_operations(job: Job, trace: Trace, promised: Capabilities, *, backward: bool = True) -> Iterator[Finding]:
    """The first Finding about each operation. backward: also about the gradients of a backward after zero_grad."""
    oracle = Oracle(job, promised, bounds=True)
    last: Operation | None = None
    added = not backward  # the last backward's gradients, to others that were there
    apart = False  # whether parameters or buffers differed between ranks
    first_only = False  # the other ranks may have loaded their own values, or rank 0's
    found = False  # a Finding about the last operation
    for moment in oracle.walk():
        position, operation = moment.position, moment.operation
        if not isinstance(operation, Observe):
            last, found = operation, False
            first_only = first_only or (apart and isinstance(operation, Resume))
        if not found:
            try:
                judged = _judged(moment, last, added=added)
                compare(_of_rank_zero(judged) if first_only else judged, job, trace, bits=False)
            except Finding as finding:
                told = finding.diagnosis
                of = WrongInJob(job, position, told.subject[0], told.causes, promised.replica.reduction_dtype)
                found = True
                yield finding.blaming(causes_in_job(of)).at(position)
        if isinstance(operation, Observe):
            added = not backward or any(
                np.any(array) for seen in trace.values(position, "gradients") for array in seen.values()
            )
            if not all(oracle.goes_on_from(what, trace.values(position, what)) for what in operation.what):
                return
            kept = ("parameters", "buffers")
            apart = apart or any(_differ(trace.values(position, what), moment.arrays[what]) for what in kept)


def _of_rank_zero(moment: ExpectedOperation) -> ExpectedOperation:
    arrays = {
        what: {name: replace(entry, ranks=entry.ranks[:1]) for name, entry in entries.items()}
        for what, entries in moment.arrays.items()
    }
    return replace(moment, arrays=arrays, numbers={}, promised=moment.promised[:1])


def _differ(shown: list[Mapping[str, Any]], expected: Mapping[str, ExpectedArray]) -> bool:
    """Whether ranks show different arrays that should be equal."""
    alike = [name for name, entry in expected.items() if entry.alike]
    return any(not np.array_equal(shown[0][name], own[name]) for own in shown[1:] for name in alike)


def _judged(moment: ExpectedOperation, last: Operation | None, *, added: bool) -> ExpectedOperation:
    """The results that the values shown before the last operation decide: none of a new replica, and no gradients that a
    backward adds to others, which may be reduced again.
    """
    left_out = ("gradients",) if isinstance(last, Backward) and added else moment.arrays if last is None else ()
    return replace(moment, arrays={what: shown for what, shown in moment.arrays.items() if what not in left_out})
