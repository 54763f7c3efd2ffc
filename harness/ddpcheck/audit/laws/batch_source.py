"""Tells whether the batches of a script were recognised, so that one process gets those of all ranks."""

from __future__ import annotations

from ..evidence import Evidence


def batches_recognised(evidence: Evidence) -> bool:
    """Whether they came from a loader, were marked, or came from indices that each rank draws for itself.

    A permutation that all ranks draw alike, and slice, gives one process other samples.
    """
    if any(event["grad"] for event in evidence.real.of(0, "batch")):
        return True
    return any(
        together[0]["integer"] and len({event["digest"] for event in together}) > 1
        for together in evidence.aligned("draw")
    )
