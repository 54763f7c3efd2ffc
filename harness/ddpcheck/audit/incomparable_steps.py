"""Reasons why a mirror run cannot be compared in a step: it ended earlier, or the ranks' values do not fit together."""

from __future__ import annotations

from .event_journal import Event
from .evidence import RunSeen

_KINDS = {"draw": "random results", "batch": "batches", "state": "states"}


def ended_before(mirror: RunSeen) -> str:
    """The reason for a mirror run that ended before the step."""
    end = mirror.end(0)
    said = mirror.output.rstrip().rpartition("\n")[2] if end["why"] == "finished" else ""
    why = end.get("error") or (f"its last output: {said}" if said else end["why"]) or "it was ended"
    return f"the run as one process ended before: {why}"


def misfits(mirror: RunSeen, steps: range) -> list[Event]:
    """The values of these steps that a mirror could not put together."""
    return [event for event in mirror.of(0, "misfit") if event["step"] in steps]


def misfit(mirror: RunSeen, steps: range) -> str:
    """The first misfit as a reason; empty if there is none."""
    for event in misfits(mirror, steps):
        kind = _KINDS.get(event["what"], event["what"])
        return f"{kind} do not fit together: {event.get('why', event.get('names', ''))} ({event['line']})"
    return ""
