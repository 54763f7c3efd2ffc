"""Finds a line that only some ranks' losses pass through, and the condition around it."""

from __future__ import annotations

from ...causes import Cause
from ...causes.audit import gradients as causes
from ..evidence import Evidence
from .loss_terms import terms_of


def losses_computed_apart(evidence: Evidence, step: int) -> Cause | None:
    """The cause, if the ranks compute the losses of this step by different lines, and the source shows why."""
    ways = [
        [str(entry[0]) for event in terms_of(evidence.real, rank, step) for entry in event["values"]]
        for rank in range(evidence.ranks)
    ]
    for line in dict.fromkeys(line for way in ways for line in way):
        ranks = tuple(rank for rank, way in enumerate(ways) if line in way)
        condition = _condition_around(evidence, line)
        if len(ranks) < evidence.ranks and condition:
            return causes.LOSS_DECIDED_PER_RANK(ranks=ranks, step=step, line=line, condition=condition)
    return None


def _condition_around(evidence: Evidence, line: str) -> str:
    """The innermost condition of which a block holds the line, as file:line and text; empty if there is none."""
    file, _, number = line.rpartition(":")
    source = evidence.sources.get(file)
    around = (
        [each for each in source.conditions if any(block.holds(int(number)) for block in each.blocks)] if source else []
    )
    found = max((each for each in around if not each.loop), key=lambda each: each.line, default=None)
    return f"{file}:{found.line} ({found.text})" if found else ""
