"""Tells a loss that uses a value of each rank's own, such as class weights of the rank's part of the data."""

from __future__ import annotations

from collections.abc import Iterator

from ...causes import Cause
from ...causes.audit import gradients as causes
from ..event_journal import Event
from ..evidence import Evidence


def constant_of_each_rank(evidence: Evidence) -> Cause | None:
    """The cause, if a value that is used in each step at one line differs between ranks."""
    apart = next(_apart(evidence, "constant"), None)
    return causes.VALUE_DIFFERS(line=apart["line"]) if apart else None


def carried_value_of_each_rank(evidence: Evidence, step: int) -> Cause | None:
    """The cause, if a value that is carried from earlier steps differs between ranks by this step."""
    apart = next((event for event in _apart(evidence, "carried", "step") if event["step"] <= step), None)
    return causes.CARRIED_VALUE_DIFFERS(line=apart["line"]) if apart else None


def _apart(evidence: Evidence, kind: str, *more: str) -> Iterator[Event]:
    """Rank 0's events of this kind whose values differ, where line, shape, and these fields more, are equal on all ranks."""
    for together in evidence.aligned(kind):
        alike = len({tuple(event[name] for name in ("line", *more)) + tuple(event["shape"]) for event in together}) == 1
        if alike and len({event["digest"] for event in together}) > 1:
            yield together[0]
