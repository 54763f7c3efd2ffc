"""The law of asynchronous collectives: they end before their results are used."""

from __future__ import annotations

from ...causes.collectives import CHANGED_IN_FLIGHT, HANDLE_NOT_AWAITED
from ..evidence import Evidence
from .law import LawVerdict, broken, held, not_judged


def collectives_are_awaited(evidence: Evidence) -> LawVerdict:
    """A handle that is gone without a question, and a tensor that PyTorch counts as changed, are exact: no time is measured."""
    for rank in range(evidence.ranks):
        for event in evidence.real.of(rank, "in_flight"):
            operation, line = event["op"], event["start"]
            if event["how"] == "changed":
                headline = f"the tensor of {operation} at {line} changes while it runs, in step {event['step']}"
                return broken(headline, CHANGED_IN_FLIGHT(operation=operation, line=line, wait=event["line"]))
            headline = f"the handle of {operation} at {line} is dropped in step {event['step']}"
            return broken(headline, HANDLE_NOT_AWAITED(operation=operation, line=line))
    started = any(event.get("asynchronous") for event in evidence.real.of(0, "left"))
    return held() if started else not_judged("the script starts no collective asynchronously")


def gradients_are_in_flight(evidence: Evidence) -> bool:
    """Whether a collective that is not awaited began after a backward pass, so that gradients depend on time."""
    return any(event["number"] for rank in range(evidence.ranks) for event in evidence.real.of(rank, "in_flight"))
