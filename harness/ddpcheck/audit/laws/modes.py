"""The law of modes: dropout and batch norm do the same on all ranks while they train."""

from __future__ import annotations

from ...causes.audit import replicas as causes
from ..evidence import Evidence
from .law import LawVerdict, broken, held, not_judged


def ranks_train_in_the_same_mode(evidence: Evidence) -> LawVerdict:
    """Compare the modes at the end of each step in which one changed. A module that depends on no mode has none."""
    changes = evidence.each_rank("mode")
    if evidence.ranks == 1:
        return not_judged("there is one rank")
    for step in sorted({event["step"] for events in changes for event in events}):
        if step >= evidence.steps_seen:
            break
        own = [{event["place"]: event for event in events if event["step"] <= step} for events in changes]
        for place in sorted({place for last in own for place in last}):
            counts = [last[place]["count"] if place in last else 0 for last in own]
            if len(set(counts)) > 1:
                ranks = tuple(rank for rank, count in enumerate(counts) if count == max(counts))
                event = own[ranks[0]][place]
                name = event["evaluating"][0]
                module = f"module {name}" if name else "the model"
                return broken(
                    f"modules in eval() in step {step}: {', '.join(map(str, counts))}, rank by rank",
                    causes.MODES_DIFFER(ranks=ranks, module=module, step=step, line=event["line"]),
                )
    return held()
