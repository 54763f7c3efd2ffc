"""Operations judged by the values that the ranks showed before them.

So a known mistake hides no other: its wrong values are taken as they are, and later operations must follow from them.
Where a correct implementation may decide, as with gradients that differ between ranks, only causes that explain a value
are told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ddpcheck import assertions
from ddpcheck.causes import Kind, auxiliary_terms, gradients, sample_weights, values
from ddpcheck.contract import Capabilities
from ddpcheck.job import Backward, Clip, Job, Join, Observe, Operation, Predict, Resume, Save, Step, ZeroGrad
from ddpcheck.operations.replica import of_two_replicas
from ddpcheck.oracle import ExpectedArray, ExpectedOperation, Oracle
from ddpcheck.oracle.origins import Update
from ddpcheck.running.implied_causes import adds_to
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from ..drawing import Further, within_promises
from .comparison import compare, placed

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
    each.id
    for module in (auxiliary_terms, gradients, sample_weights, values)
    for each in vars(module).values()
    if isinstance(each, Kind)
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
    oracle, shown = Oracle(job, promised, bounds=True), _Shown(gradients_known)
    for moment in oracle.walk():
        if not isinstance(moment.operation, Observe):
            shown.begin(moment.operation)
        judged = shown.decided_by_last(moment)
        if judged is not None:
            try:
                compare(judged, job, trace, bits=False)
            except Finding as finding:
                shown.set_wrong()
                yield placed(finding, job, moment.position, promised)
        if isinstance(moment.operation, Observe):
            shown.look(moment, trace)
            kinds = moment.operation.what
            if not all(oracle.goes_on_from(what, trace.values(moment.position, what)) for what in kinds):
                return


@dataclass
class _Shown:
    """What the ranks have shown, which decides what can be judged next.

    last: the last operation that is no observation. wrong: kinds of operations that are not judged any more. added: the
    last backward may add to gradients that were there. apart: parameters or buffers differ between ranks. differing: so do
    gradients, so a norm may be taken in several ways. first_only: the other ranks may have loaded rank 0's values, or
    their own.
    """

    gradients_known: bool
    last: Operation | None = None
    wrong: set[str] = field(default_factory=set)
    added: bool = False
    apart: bool = False
    differing: bool = False
    first_only: bool = False

    def begin(self, operation: Operation) -> None:
        """Take an operation as the last one."""
        self.last = operation
        self.first_only = self.first_only or (self.apart and isinstance(operation, Resume))

    def decided_by_last(self, moment: ExpectedOperation) -> ExpectedOperation | None:
        """The results that the last operation decides; None if it is not judged."""
        last = self.last
        if last is None or last.kind in self.wrong or (self.differing and isinstance(last, Clip)):
            return None
        decided = self._decided(moment, last)
        return _of_rank_zero(decided) if self.first_only else decided

    def set_wrong(self) -> None:
        """Judge no more operations of the last one's kind; after a wrong resume no steps either."""
        assert self.last is not None
        self.wrong |= {self.last.kind, *[Step.kind] * isinstance(self.last, Resume)}

    def look(self, moment: ExpectedOperation, trace: Trace) -> None:
        """Take in an observation of all kinds of values."""
        seen = {what: trace.values(moment.position, what) for what in _LOOK.what}
        if isinstance(self.last, Backward) and _moved(seen["parameters"], moment.arrays["parameters"]):
            self.wrong.add(Step.kind)  # of which the optimizer may know
        self.added = any(np.any(array) for rank in seen["gradients"] for array in rank.values())
        self.differing = _differ(seen["gradients"], moment.arrays["gradients"])
        self.apart = self.apart or any(_differ(seen[what], moment.arrays[what]) for what in ("parameters", "buffers"))

    def _decided(self, moment: ExpectedOperation, last: Operation) -> ExpectedOperation:
        """Gradients that a backward adds to others may be reduced again, and buffers that differ between ranks may be
        those of any rank.
        """
        decided = set(_DECIDED.get(type(last), ()))
        if isinstance(last, Backward):
            unknown = self.added or not self.gradients_known
            decided -= {*["gradients"] * unknown, *["buffers"] * self.apart}
        arrays = {what: entries for what, entries in moment.arrays.items() if what in decided}
        if isinstance(last, Step) and not self.gradients_known:
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
