"""Tells ranks that step with their own gradients, and then make their parameters equal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...causes import Cause
from ...causes.audit import gradients as causes
from ..event_journal import Event
from ..evidence import Evidence
from .replicas import different, states


def made_equal_after(evidence: Evidence, step: int) -> Cause | str:
    """Why this is not one process's step; or an observation, if a mean of parameters is the step of the mean gradient, as it is
    for SGD. Empty if collectives after the step do not make parameters equal.
    """
    after = next((together for together in states(evidence) if together[0]["step"] > step), None)
    if after is None or different(after, "p"):
        return ""
    calls = [
        e for e in evidence.real.of(0, "collective") if e["step"] == step + 1 and e["number"] == 0 and not e["point"]
    ]
    for op in ("all_reduce", "broadcast"):
        own = [event for event in calls if event["op"] == op]
        if not cover_parameters(evidence, own):
            continue
        line = own[0]["line"]
        if op == "broadcast":
            return causes.PARAMETERS_OF_ONE_RANK(line=line)
        optimizer = next(event.get("name", "") for event in evidence.real.of(0, "step") if event["step"] == step)
        if optimizer == "SGD" and not any(event["step"] == step for event in evidence.real.of(0, "clip")):
            return f"parameters are averaged after each step, at {line}: for SGD, this is the step of the mean gradient"
        return causes.PARAMETERS_AVERAGED(optimizer=optimizer, line=line)
    return ""


def cover_parameters(evidence: Evidence, collectives: Sequence[Event]) -> bool:
    """Whether these collectives take as many numbers as the trained modules have parameters."""
    count = sum(module["parameters"] for module in evidence.real.of(0, "module") if module["grad"])
    return bool(0 < count <= sum(math.prod(event.get("shape", (0,))) for event in collectives))
