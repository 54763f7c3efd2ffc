"""Hypotheses about a wrong part of a large gradient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...causes import Cause, Kind
from ...causes import gradients as causes
from ...job import ProbeGradients


@dataclass(frozen=True)
class WrongElements:
    """Wrong elements of a gradient. seen: how many are wrong, zero or local, and the first and the last of them."""

    probe: ProbeGradients
    seen: Mapping[str, int]

    def part(self, kind: Kind, what: str) -> Cause | None:
        """This cause, if some elements are such, and not all are wrong."""
        elements, seen = self.probe.elements, self.seen
        if seen["wrong"] == elements or not seen[what]:
            return None
        return kind(first=seen["first"], last=seen["last"], elements=elements)


def part_is_zero(of: WrongElements) -> Cause | None:
    return of.part(causes.PART_OF_LARGE_TENSOR_ZERO, "zero")


def part_is_local(of: WrongElements) -> Cause | None:
    """The part has only this rank's contribution."""
    return of.part(causes.PART_OF_LARGE_TENSOR_LOCAL, "local")
