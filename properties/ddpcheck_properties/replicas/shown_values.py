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
from ddpcheck.causes import Kind, gradients, values
from ddpcheck.contract import Capabilities
from ddpcheck.hypotheses.causes_of_observations import causes_in_job
from ddpcheck.hypotheses.programs import WrongInJob
from ddpcheck.job import Backward, Clip, Job, Join, Observe, Operation, Predict, Resume, Save, Step, ZeroGrad
from ddpcheck.operations.replica import of_two_replicas
from ddpcheck.oracle import ExpectedArray, ExpectedOperation, Oracle
from ddpcheck.oracle.origins import Update
from ddpcheck.running.implied_causes import adds_to
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from ..drawing import Further, within_promises
from .comparison import compare

if TYPE_CHECKING:
    from ddpcheck.session import Session

_LOOK = Observe(("gradients", "parameters", "buffers"))
_NOTE = (
    "a second mistake: each operation is judged by the values shown before it, because other checks tell the cause of the "
    "first. A replay judges the whole Job, and shows the first."
)
_DECIDED: Mapping[type, tuple[str, ...]] = {
    Backward: ("gradients", "buffers"),
    Clip: ("gradients",),
    Predict: ("gradients",),
    Resume: ("parameters", "buffers"),
    Save: ("gradients",),
    Step: ("parameters",),
    ZeroGrad: ("gradients",),
}
"""The kinds of values that an operation decides, or leaves as they are. Other changes have checks of their own."""
_OF_GRADIENTS = frozenset(
    each.id for module in (gradients, values) for each in vars(module).values() if isinstance(each, Kind)
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
    cause no other check has told. If causes of wrong gradients are told, the gradients of backwards are not judged, nor are
    steps of parameters without gradient.
    """

    def raise_other(job: Job, trace: Trace) -> None:
        assertions.completed(trace)
        known = session.told.isdisjoint(_OF_GRADIENTS)
        for finding in wrong_operations(job, trace, session.capabilities, gradients_known=known):
            if adds_to(session.told, finding.diagnosis.causes):
                raise finding.noting(_NOTE)

    return Further(looking_everywhere, raise_other)


def wrong_operations(
    job: Job, trace: Trace, promised: Capabilities, *, gradients_known: bool = True
) -> Iterator[Finding]:
    """The first Finding about each kind of operation: later ones may come from the same mistake, as what an optimizer keeps
    is not shown.
    """
    oracle = Oracle(job, promised, bounds=True)
    last: Operation | None = None
    added = False  # the last backward's gradients, to others that were there
    apart = False  # whether parameters or buffers differed between ranks
    differing = False  # whether the last gradients differ between ranks: a norm may be taken in several ways
    first_only = False  # the other ranks may have loaded their own values, or rank 0's
    wrong: set[str] = set()  # kinds of operations
    for moment in oracle.walk():
        position, operation = moment.position, moment.operation
        if not isinstance(operation, Observe):
            last = operation
            first_only = first_only or (apart and isinstance(operation, Resume))
        if last is not None and last.kind not in wrong and not (differing and isinstance(last, Clip)):
            judged = _decided(moment, last, gradients_known=gradients_known, added=added, apart=apart)
            try:
                compare(_of_rank_zero(judged) if first_only else judged, job, trace, bits=False)
            except Finding as finding:
                told = finding.diagnosis
                of = WrongInJob(job, position, told.subject[0], told.causes, promised.replica.reduction_dtype)
                wrong |= {last.kind, *[Step.kind] * isinstance(last, Resume)}
                yield finding.blaming(causes_in_job(of)).at(position)
        if isinstance(operation, Observe):
            if isinstance(last, Backward) and _moved(trace.values(position, "parameters"), moment.arrays["parameters"]):
                wrong.add(Step.kind)  # of which the optimizer may know
            added = any(np.any(array) for seen in trace.values(position, "gradients") for array in seen.values())
            if not all(oracle.goes_on_from(what, trace.values(position, what)) for what in operation.what):
                return
            kept = ("parameters", "buffers")
            differing = _differ(trace.values(position, "gradients"), moment.arrays["gradients"])
            apart = apart or any(_differ(trace.values(position, what), moment.arrays[what]) for what in kept)


def _decided(
    moment: ExpectedOperation, last: Operation, *, gradients_known: bool, added: bool, apart: bool
) -> ExpectedOperation:
    """The results that the last operation decides. Gradients that a backward adds to others may be reduced again, and
    buffers that differ between ranks may be those of any rank.
    """
    decided = set(_DECIDED.get(type(last), ()))
    if isinstance(last, Backward):
        decided -= {*["gradients"] * (added or not gradients_known), *["buffers"] * apart}
    arrays = {what: entries for what, entries in moment.arrays.items() if what in decided}
    if isinstance(last, Step) and not gradients_known:
        arrays = {
            what: {name: entry for name, entry in entries.items() if isinstance(entry.made_of, Update)}
            for what, entries in arrays.items()
        }
    return replace(moment, arrays=arrays)


def _of_rank_zero(moment: ExpectedOperation) -> ExpectedOperation:
    arrays = {
        what: {name: replace(entry, ranks=entry.ranks[:1]) for name, entry in entries.items()}
        for what, entries in moment.arrays.items()
    }
    return replace(moment, arrays=arrays, numbers={}, promised=moment.promised[:1])


def _moved(shown: list[Mapping[str, Any]], expected: Mapping[str, ExpectedArray]) -> bool:
    """Whether ranks show other arrays than the expected ones, which are exact."""
    return any(
        not np.array_equal(own.get(name, ()), entry.value.exact[rank])
        for name, entry in expected.items()
        for rank, own in enumerate(shown)
    )


def _differ(shown: list[Mapping[str, Any]], expected: Mapping[str, ExpectedArray]) -> bool:
    """Whether ranks show different arrays that should be equal."""
    alike = [name for name, entry in expected.items() if entry.alike]
    return any(not np.array_equal(shown[0].get(name, ()), own.get(name, ())) for own in shown[1:] for name in alike)
