"""The law of random draws: each rank draws its own numbers for its samples; or all draw the same if the audit asks for
that.
"""

from __future__ import annotations

from collections import defaultdict

from ...causes.audit import steps as causes
from ..evidence import Evidence
from .law import LawVerdict, broken, held, not_judged
from .shards import ranks_read_different_shards

_ELEMENTS = 8
"""A draw with fewer elements may belong to the whole step, and must then be equal on all ranks."""


def random_streams_are_as_asked(evidence: Evidence) -> LawVerdict:
    if evidence.ranks == 1:
        return not_judged("there is one rank")
    if evidence.random_streams == "any":
        return not_judged("--random-streams any asks for none")
    if evidence.random_streams == "equal":
        return _equal(evidence)
    if ranks_read_different_shards(evidence).status == "broken":
        return not_judged("the ranks read the same data")
    compared = _compared(evidence, _ELEMENTS, for_samples=True)
    # draws that grow with the world size: all ranks make the same one, and each takes its own part
    of_all = {event["line"] for event in evidence.of_one_process("draw_of_all")}
    for (line, operation), equal in compared.items():
        if all(equal) and line not in of_all:
            return broken(
                f"{operation} at {line} gives every rank the same numbers",
                causes.SAME_DRAWS(line=line, operation=operation.strip("_"), count=len(equal), of=len(equal)),
            )
    return _held(compared)


def _equal(evidence: Evidence) -> LawVerdict:
    compared = _compared(evidence, 1)
    for (line, operation), equal in compared.items():
        if not all(equal):
            count = len(equal) - sum(equal)
            return broken(
                f"{operation} at {line} gives the ranks different numbers",
                causes.DRAWS_DIFFER(line=line, operation=operation.strip("_"), count=count, of=len(equal)),
            )
    return _held(compared)


def _held(compared: dict[tuple[str, str], list[bool]]) -> LawVerdict:
    if not compared:
        return not_judged("torch drew no random numbers in training, or none with as many on all ranks")
    return held(f"{sum(map(len, compared.values()))} draws compared")


def _compared(evidence: Evidence, least: int, *, for_samples: bool = False) -> dict[tuple[str, str], list[bool]]:
    """For each line and operation and each draw of at least `least` elements: whether all ranks drew the same.

    Draws of different shapes, as for a shorter last batch, are left out, since they cannot be compared. for_samples: draws
    between the last backward and the step are left out, too, as noise that is added to gradients is common to all samples; and
    those of data sets are compared, too, such as an augmentation's. An order of more than a batch is of the whole data set.
    """
    kinds = ("draw", "loading_draw") if for_samples else ("draw",)
    backwards = {event["step"]: event["backwards"] for event in evidence.real.of(0, "step")} if for_samples else {}
    largest = max((event["size"] for event in evidence.real.of(0, "batch")), default=0)
    drawn = [
        {
            e["key"] + f" {e['step']}": e
            for e in events
            if e["training"]
            and _size(e["shape"]) >= least
            and not 0 < e.get("backwards", 0) == backwards.get(e["step"], -1)
            and not (for_samples and e["op"] == "randperm" and _size(e["shape"]) > largest)
        }
        for events in evidence.each_rank(*kinds)
    ]
    found: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for key, event in drawn[0].items():
        others = [own.get(key) for own in drawn[1:]]
        if all(other is not None and other["shape"] == event["shape"] for other in others):
            same = all(other is not None and other["digest"] == event["digest"] for other in others)
            found[event["line"], event["op"]].append(same)
    return found


def _size(shape: list[int]) -> int:
    size = 1
    for each in shape:
        size *= each
    return size
