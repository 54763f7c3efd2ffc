"""Judges of arrays that an implementation must not change: arguments of its methods, saved states, and batches."""

from __future__ import annotations

from collections.abc import Sequence

from ddpcheck import assertions
from ddpcheck.causes import programs
from ddpcheck.contract import Capabilities
from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.ordered_hypotheses.replicas import OF_CHANGED_ARGUMENTS
from ddpcheck.job import Job
from ddpcheck.trace import Trace

from .comparison import when


def arguments_unchanged(promised: Capabilities, job: Job, trace: Trace) -> None:
    """The loaded state keeps its values; so do the arguments of replicas, if several may exist."""
    assertions.completed(trace)
    calls = ("load_state", "make_replica") if promised.replica.several_replicas else ("load_state",)
    for rank in trace.ranks:
        found = (each for record in rank.records for each in record.values.get("arguments_changed", ()))
        changed = [(call, name) for call, name in found if call in calls]
        assertions.that(
            not changed,
            f"{', '.join(map(_argument, changed[:3]))} on rank {rank.rank}: changed since, but should stay as it was",
            first_cause(OF_CHANGED_ARGUMENTS, [name for _, name in changed]),
        )


def _argument(changed: tuple[str, str]) -> str:
    call, name = changed
    return f"{name} given to {call}()" if name else f"the names in the argument of {call}()"


def states_and_batches_unchanged(job: Job, trace: Trace) -> None:
    """Saved states and batches have not changed."""
    assertions.completed(trace)
    for rank in trace.ranks:
        for record in rank.records:
            place = f"{when(job, record.operation)}, rank {rank.rank}"
            changed: Sequence[str] = record.values.get("overwritten_later", ())
            assertions.that(
                not changed,
                f"state(): {', '.join(changed[:3])} ({place}): later operations changed them, but they should be copies",
                programs.STATE_IS_VIEW(),
            )
            written: Sequence[str] = record.values.get("batch_changed", ())
            call = job.operations[record.operation].kind
            assertions.that(
                not written,
                f"{call} ({place}): the batch's {', '.join(written)} were changed, but should stay as they were",
                programs.CALL_CHANGES_BATCH(operation=call),
            )
