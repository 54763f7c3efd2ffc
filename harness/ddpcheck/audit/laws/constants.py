"""Tells a loss that uses a value of each rank's own, such as class weights of the rank's part of the data."""

from __future__ import annotations

from ...causes import Cause
from ...causes.audit import gradients as causes
from ..evidence import Evidence


def constant_of_each_rank(evidence: Evidence) -> Cause | None:
    """The cause, if a value that is used in each step at one line differs between ranks."""
    for together in evidence.aligned("constant"):
        alike = len({(event["line"], tuple(event["shape"])) for event in together}) == 1
        if alike and len({event["digest"] for event in together}) > 1:
            return causes.VALUE_DIFFERS(line=together[0]["line"])
    return None


def carried_value_of_each_rank(evidence: Evidence, step: int) -> Cause | None:
    """The cause, if a value that is carried from earlier steps differs between ranks by this step."""
    for together in evidence.aligned("carried"):
        alike = len({(event["line"], tuple(event["shape"]), event["step"]) for event in together}) == 1
        if alike and together[0]["step"] <= step and len({event["digest"] for event in together}) > 1:
            return causes.CARRIED_VALUE_DIFFERS(line=together[0]["line"])
    return None
