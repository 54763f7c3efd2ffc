"""Tells a loss over gathered features whose targets, or whose own features, are those of rank 0 on every rank."""

from __future__ import annotations

from itertools import pairwise

from ...causes import Cause
from ...causes.audit import gradients as causes
from ..event_journal import Event
from ..evidence import Evidence


def gathers(evidence: Evidence) -> list[Event]:
    return [event for event in evidence.real.of(0, "collective") if event["op"].startswith("all_gather")]


def targets_not_shifted(evidence: Evidence, step: int) -> Cause | None:
    """The cause, if each rank's targets count from 0 and the ranks compare their rows with those of all ranks."""
    for together in evidence.aligned("positions"):
        rows, columns = together[0]["rows"], together[0]["columns"]
        gathered = all(e["rows"] == rows and e["columns"] == columns == rows * evidence.ranks for e in together)
        if together[0]["step"] == step and gathered and all(e["first"] == 0 for e in together):
            return causes.TARGETS_NOT_SHIFTED(rows=rows, columns=columns, line=together[0]["line"])
    return None


def targets_shifted_by_other_rows(evidence: Evidence, step: int) -> Cause | None:
    """The cause, if targets go on from rank to rank by another number of rows than each rank gives features."""
    gathered = {event["shape"][0] for event in gathers(evidence) if event["step"] == step and event["shape"]}
    for together in evidence.aligned("positions"):
        columns, line = together[0]["columns"], together[0]["line"]
        shifts = {later["first"] - earlier["first"] for earlier, later in pairwise(together)}
        if together[0]["step"] == step and len(shifts) == len(gathered) == 1:
            (shift,), (own,) = shifts, gathered
            if shift != own and own * evidence.ranks == columns:
                return causes.TARGETS_SHIFTED_BY_OTHER_ROWS(shift=shift, own=own, line=line)
    return None


def own_features_misplaced(evidence: Evidence, step: int) -> Cause | None:
    """The cause, if a rank puts its own features in another rank's place among the gathered ones."""
    for rank, events in enumerate(evidence.each_rank("own_place")):
        for event in events:
            if event["step"] == step and event["place"] != rank:
                return causes.OWN_FEATURES_MISPLACED(rank=rank, place=event["place"], line=event["line"])
    return None
