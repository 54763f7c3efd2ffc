"""The law of terms that do not depend on samples, such as a prior's: they are divided by the samples of all ranks.

One process computes the same as the ranks if the script takes the number of one rank's samples, so that a comparison is no help.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...causes.audit import gradients as causes
from ..event_journal import Event
from ..evidence import Evidence
from .law import LawVerdict, broken, held, not_judged
from .losses import near

_EXACT = 1e-5
_FEWEST = 24
"""Smaller numbers are too often something else."""


def terms_are_divided_by_all_samples(evidence: Evidence) -> LawVerdict:
    if evidence.ranks == 1:
        return not_judged("there is one rank")
    size = _size_for_one_process(evidence)
    own = {count for count in _own_counts(evidence) if _FEWEST <= count < size}
    own = {count for count in own if near(count * evidence.ranks / size, 1.0) or _rounded(evidence, count, size)}
    if not own:
        return not_judged("how many samples a rank has, and all ranks have, is not known")
    first, *others = evidence.each_rank("terms")
    for place, event in enumerate(first):
        same = [each[place] for each in others if place < len(each)]
        for line, count in _divided(event, same):
            if count in own:
                cause = causes.TERM_DIVIDED_BY_OWN_SAMPLES(line=line, count=count, size=size, ranks=evidence.ranks)
                return broken(f"a term that is the same on all ranks is divided by {count}", cause)
    return held()


def _size_for_one_process(evidence: Evidence) -> int:
    """The samples of the data set that one process makes for its largest loader with gradients; 0 if they are not known."""
    one = evidence.mirrors.get("one")
    trained = {event["key"] for event in one.of(0, "given") if event["grad"]} if one is not None else set()
    found = [event for run in (evidence.real, one) if run is not None for event in run.of(0, "loader")]
    return max((event["size"] or 0 for event in found if event["key"] in trained), default=0)


def _own_counts(evidence: Evidence) -> set[int]:
    """The numbers of samples that rank 0 may have: of a pass of a loader, of its sampler, of its data set."""
    trained = {event["key"] for event in evidence.real.of(0, "batch") if event["grad"]}
    loaders = [event for event in evidence.real.of(0, "loader") if event["key"] in trained]
    epochs = [event for event in evidence.real.of(0, "epoch") if event["key"] in trained and event["distributed"]]
    found = {event["distributed"]["num_samples"] for event in epochs}
    found |= {each["batches"] * each["batch_size"] for each in loaders if each["batches"] and each["batch_size"]}
    return found | {event["size"] for event in loaders if event["size"]}


def _rounded(evidence: Evidence, count: int, size: int) -> bool:
    """Whether a rank's part of the samples is filled up, or cut, to whole batches."""
    sizes = [event["batch_size"] or 1 for event in evidence.real.of(0, "loader")]
    return abs(count - size / evidence.ranks) < max(sizes, default=1)


def _divided(event: Event, others: list[Event]) -> Iterator[tuple[str, int]]:
    """Each value that is another one, divided by a whole number, where that is the same on all ranks: the line, the number."""
    for place, (line, operation, value, parts, _) in enumerate(event["values"]):
        if operation not in ("div", "mul") or len(parts) != 1 or not value:
            continue
        whole = event["values"][parts[0]][2]
        alike = all(
            place < len(other["values"])
            and other["values"][place][:3] == [line, operation, value]
            and other["values"][parts[0]][2] == whole
            for other in others
        )
        count = round(whole / value)
        if alike and count > 1 and abs(whole / value - count) <= _EXACT * count:
            yield line, count
