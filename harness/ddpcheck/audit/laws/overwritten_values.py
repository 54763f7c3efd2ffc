"""Tells a broadcast in training that replaces what each rank computed from its own samples, such as a hidden state."""

from __future__ import annotations

import math

from ...causes import Cause
from ...causes.audit.gradients import OWN_VALUES_OVERWRITTEN
from ..event_journal import Event
from ..evidence import Evidence


def own_values_overwritten(evidence: Evidence, step: int) -> Cause | None:
    """The cause, if one process has as many values there as all ranks together, and theirs differ before the broadcast."""
    whole = {
        (e["line"], math.prod(e["shape"])) for e in evidence.of_one_process("collective") if e["op"] == "broadcast"
    }
    broadcasts = (
        [e for e in events if e["op"] == "broadcast" and "digest" in e] for events in evidence.each_rank("collective")
    )
    for together in zip(*broadcasts, strict=False):
        first = together[0]
        apart = len({event["digest"] for event in together}) > 1
        if apart and first["step"] <= step and (first["line"], _size_of_all(together)) in whole:
            return OWN_VALUES_OVERWRITTEN(root=first["root"], step=first["step"], line=first["line"])
    return None


def _size_of_all(together: tuple[Event, ...]) -> int:
    return sum(math.prod(event["shape"]) for event in together)
