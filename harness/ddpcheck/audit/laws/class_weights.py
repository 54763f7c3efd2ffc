"""Tells a loss that is divided by each rank's own class weights from one that is divided by its number of samples."""

from __future__ import annotations

from ...causes import Cause
from ...causes.audit import gradients as causes
from ..evidence import Evidence, StepSeen

_CLOSE = 1e-2


def divided_by_own_weights(evidence: Evidence, step: StepSeen) -> Cause | None:
    """The cause, if one process weighs the ranks by the sums of their targets' class weights."""
    seen = [
        [event for event in events if event["step"] == step.step and event["backwards"] == 0]
        for events in evidence.each_rank("class_weights")
    ]
    if not all(seen):
        return None
    sums = [sum(event["weights"] for event in events) for events in seen]
    whole, wanted = sum(sums), sum(step.w[0])
    if not whole or not wanted:
        return None
    if any(abs(own / whole - w / wanted) > _CLOSE / len(sums) for own, w in zip(sums, step.w[0], strict=True)):
        return None
    return causes.CLASS_WEIGHTS_PER_RANK(
        sums=", ".join(f"{own:.4g}" for own in sums),
        targets=", ".join(str(sum(event["targets"] for event in events)) for events in seen),
        line=seen[0][0]["line"],
    )
