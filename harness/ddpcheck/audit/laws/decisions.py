"""Tells whether one process trains on the same batches: not where a script skips batches by what one rank computes."""

from __future__ import annotations

from collections.abc import Iterable

from ...causes import Cause
from ...causes.audit import gradients as causes
from ..event_journal import Event
from ..evidence import Evidence

_SENDS = frozenset({"broadcast", "broadcast_object_list", "barrier"})

Batch = tuple[str, int, int]


def other_batches_from(evidence: Evidence) -> int | None:
    """The first compared step for which one process reads other batches than the ranks, which all read the same places; None if
    there is none.
    """
    one = evidence.mirrors.get("one")
    given = one.of(0, "given") if one is not None else []
    last = max((event["step"] for event in given), default=-1)
    for step in range(min(last, evidence.steps - 1) + 1):
        first, *others = (_read(events, step) for events in evidence.each_rank("batch"))
        if any(other != first for other in others):
            return None
        alone = _read(given, step)
        if first and alone and first != alone:
            return step
    return None


def decided_by_one_rank(evidence: Evidence, step: int) -> Cause | None:
    """The cause, if a number is sent from one rank to the others before a backward pass of this step, and nothing is reduced."""
    calls = [e for e in evidence.real.of(0, "collective") if e["step"] == step and e["number"] == 0]
    if not calls or any(event["op"] not in _SENDS for event in calls):
        return None
    number = next((e for e in calls if e["op"] == "broadcast_object_list" or len(e.get("values") or ()) == 1), None)
    return causes.BATCH_CHOSEN_BY_ONE_RANK(step=step, line=number["line"]) if number else None


def _read(events: Iterable[Event], step: int) -> tuple[Batch, ...]:
    """The batches of this step that were read with gradients, each once: a mirror may get those of the ranks in turn."""
    found = ((e["key"], e["passed"], e["number"]) for e in events if e["step"] == step and e["grad"])
    return tuple(dict.fromkeys(found))
