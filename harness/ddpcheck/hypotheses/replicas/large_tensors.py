"""Causes of a wrong part of a large gradient."""

from __future__ import annotations

from ...causes import Cause
from ...causes import gradients as causes
from ...job import ProbeGradients


def why_part_is_wrong(probe: ProbeGradients, seen: dict[str, int]) -> tuple[Cause, ...]:
    if seen["wrong"] == probe.elements:
        return ()
    kind = causes.PART_OF_LARGE_TENSOR_ZERO if seen["zero"] else causes.PART_OF_LARGE_TENSOR_LOCAL
    if not (seen["zero"] or seen["local"]):
        return ()
    return (kind(first=seen["first"], last=seen["last"], elements=probe.elements),)
