"""The law of random draws: each rank draws numbers of its own for its own samples."""

from __future__ import annotations

from collections import defaultdict

from ...causes import audit
from ..evidence import Evidence
from .data import ranks_read_different_shards
from .law import LawVerdict, broken, held, not_judged

_ELEMENTS = 8
"""A draw with fewer elements may be one for the whole step, which ranks have to make alike."""


def ranks_draw_numbers_of_their_own(evidence: Evidence) -> LawVerdict:
    if evidence.ranks == 1:
        return not_judged("there is one rank")
    if ranks_read_different_shards(evidence).status == "broken":
        return not_judged("the ranks read the same data")
    drawn = [
        {e["key"] + f" {e['step']}": e for e in events if e["training"] and _size(e["shape"]) >= _ELEMENTS}
        for events in evidence.each_rank("draw")
    ]
    common = [key for key in drawn[0] if all(key in own for own in drawn[1:])]
    if not common:
        return not_judged("no random numbers were drawn after the first batch")
    by_line: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for key in common:
        event = drawn[0][key]
        by_line[event["line"], event["op"]].append(all(own[key]["digest"] == event["digest"] for own in drawn[1:]))
    for (line, operation), equal in by_line.items():
        if all(equal):
            return broken(
                f"{operation} at {line} gives every rank the same numbers",
                audit.SAME_DRAWS(line=line, operation=operation.strip("_"), count=len(equal), of=len(equal)),
            )
    return held(f"{len(common)} draws compared")


def _size(shape: list[int]) -> int:
    size = 1
    for each in shape:
        size *= each
    return size
