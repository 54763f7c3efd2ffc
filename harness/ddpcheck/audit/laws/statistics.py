"""Tells a statistic over ranks, as of a batch norm written by hand, that is not the one of the whole batch."""

from __future__ import annotations

from itertools import pairwise

from ...causes import Cause
from ...causes.audit import gradients as causes
from ..evidence import Evidence, RunSeen
from .losses import CLOSE

Reduced = list[tuple[str, list[float]]]
"""The line of each all_reduce, and numbers of its result."""


def statistic_of_parts(evidence: Evidence, step: int) -> Cause | None:
    """The cause, if the first all_reduce with another result than on one process is in a forward pass of this step, and passes
    gradients on. A sum of sums is the same on one process, and a sum of means is N times as large.
    """
    one = evidence.mirrors.get("one")
    if one is None:
        return None
    real, alone = _reduced(evidence.real, step), _reduced(one, step)
    if [line for line, _ in real] != [line for line, _ in alone]:
        return None
    backward = {event["line"] for event in evidence.real.of(0, "backward")}
    for (line, got), (_, wanted) in zip(real, alone, strict=True):
        if any(_near(got, [factor * value for value in wanted]) for factor in (1, evidence.ranks)):
            continue
        return None if line in backward else causes.STATISTIC_OF_PARTS(line=line, ranks=evidence.ranks)
    return None


def _reduced(run: RunSeen, step: int) -> Reduced:
    """The results of the first rank until the first backward of the step ends."""
    found: Reduced = []
    for call, left in pairwise(run.of(0, "collective", "left")):
        if call["kind"] == "collective" and call["step"] == step and call["number"] == 0 and left["kind"] == "left":
            values = left.get("values") or left.get("sample")
            if call["op"] == "all_reduce" and call.get("autograd") and values:
                found.append((call["line"], values))
    return found


def _near(got: list[float], wanted: list[float]) -> bool:
    """Whether all numbers are equal, but for rounding of the largest."""
    largest = max((abs(value) for value in wanted), default=0.0)
    return len(got) == len(wanted) and all(abs(a - b) <= CLOSE * largest for a, b in zip(got, wanted, strict=True))
