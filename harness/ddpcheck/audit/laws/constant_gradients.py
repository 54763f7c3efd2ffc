"""Gradients that are the same for different batches, in every step or on every rank; and equal units of a layer.

Correct scripts have constant gradients, too: the bias of a loss that is linear in it, a model of one number under the
absolute error, equal batches. So parameters with few elements, or with elements of one magnitude, prove nothing, and
batches must differ.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...causes import Cause
from ...causes.audit import gradients as causes
from ...counted_nouns import counted
from ..event_journal import Event
from ..evidence import Evidence
from .law import LawVerdict, broken, held, not_judged

_STEPS = 3
"""This many steps must show the same gradients, with different batches."""


def constant_gradients(evidence: Evidence) -> tuple[str, Cause] | None:
    """The headline and the cause, if gradients do not depend on the batch."""
    steps = [event for event in evidence.real.of(0, "step") if event.get("local")]
    for optimizer in sorted({event["optimizer"] for event in steps}):
        own = [event for event in steps if event["optimizer"] == optimizer]
        found = _constant_in_time(evidence, own)
        if found is not None:
            return found
    return _equal_on_ranks(evidence)


def _telling(steps: Sequence[Event]) -> list[int]:
    """Indices of the parameters whose gradients show whether they depend on the data."""
    count = min(len(event["local"]) for event in steps)
    return [
        number
        for number in range(count)
        if all(event["local"][number] and event["patterns"][number] not in ("few", "even") for event in steps)
    ]


def _constant_in_time(evidence: Evidence, steps: Sequence[Event]) -> tuple[str, Cause] | None:
    if len(steps) < _STEPS or any(event["clipped"] for event in steps):
        return None
    telling = _telling(steps)
    if not telling or not all(_same(steps, "grads", number) for number in telling):
        return None
    line = steps[0]["line"]
    if not any(_same(steps, "local", number) for number in telling):
        return (
            f"the gradients of {counted(len(telling), 'parameter')} are equal in all bits in {len(steps)} steps",
            causes.REDUCED_GRADIENTS_STALE(line=line),
        )
    numbers = {event["step"] for event in steps}
    backwards = [event for event in evidence.real.of(0, "backward") if event["step"] in numbers]
    losses = {event["loss"] for event in backwards}
    moved = any(group.get("lr") for event in steps for group in event["groups"])
    if len(losses) > 1 or not moved or len(_batches(evidence, 0, numbers)) < _STEPS:
        return None
    return (
        f"the loss and the gradients of {counted(len(telling), 'parameter')} are equal in all bits in {len(steps)} steps",
        causes.GRADIENTS_CONSTANT(
            how="Parameters and batches change from step to step; the loss does not.", line=backwards[0]["line"]
        ),
    )


def _equal_on_ranks(evidence: Evidence) -> tuple[str, Cause] | None:
    """Modules are called but their outputs get no gradient; local gradients are equal on ranks with different
    batches.
    """
    count, steps = 0, 0
    for events in evidence.aligned("step"):
        if not all(event.get("local") for event in events):
            break
        telling = _telling(events)
        numbers = {events[0]["step"]}
        batches = [_batches(evidence, rank, numbers) for rank in range(evidence.ranks)]
        unlike = any(event["local"][number] != events[0]["local"][number] for number in telling for event in events)
        if unlike or any(event["reached"] or not event["called"] for event in events):
            return None
        if telling and all(batches) and not set.intersection(*batches):
            count, steps = max(count, len(telling)), steps + 1
    if steps < _STEPS:
        return None
    line = evidence.real.of(0, "backward")[0]["line"]
    return (
        f"the local gradients of {counted(count, 'parameter')} are equal in all bits on all ranks in {steps} steps",
        causes.GRADIENTS_CONSTANT(
            how="No gradient comes to the output of a module: it is not in the loss's graph.", line=line
        ),
    )


def _same(steps: Sequence[Event], kind: str, number: int) -> bool:
    return all(event[kind][number] == steps[0][kind][number] for event in steps)


def _batches(evidence: Evidence, rank: int, steps: set[int]) -> set[str]:
    """Digests of the batches that this rank trained on in these steps."""
    return {e["digest"] for e in evidence.real.of(rank, "batch") if e["step"] in steps and e["grad"]}


def units_are_not_copies(evidence: Evidence) -> LawVerdict:
    """Equal rows of a layer's weight with equal gradients stay equal for ever."""
    steps = [event for event in evidence.real.of(0, "step") if event.get("patterns")]
    if len(steps) < _STEPS:
        return not_judged(f"fewer than {_STEPS} steps were recorded")
    for optimizer in sorted({event["optimizer"] for event in steps}):
        own = [event for event in steps if event["optimizer"] == optimizer]
        for number in range(min(len(event["patterns"]) for event in own) if len(own) >= _STEPS else 0):
            if all(event["patterns"][number] == "rows" for event in own):
                name = evidence.name(f"{optimizer}.{number}")
                return broken(
                    f"in {len(own)} steps, all rows of {name} are alike, and so are those of its gradient",
                    causes.UNITS_ALIKE(parameter=name),
                )
    return held()
