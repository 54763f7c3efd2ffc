"""Passes over the loaders of a run, and the samples in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from ..event_journal import Event
from ..evidence import Evidence

Passes = dict[tuple[str, int], list[list[Event]]]
"""The batches of each rank, by the loader's key and the pass."""
Place = tuple[str, int, int]
"""Of a batch: the loader's key, the pass, and the batch's number in it."""


def training_passes(evidence: Evidence) -> Passes:
    """The training batches of each rank, by loader and pass. Where the ranks take batches in turn, those that each takes."""
    found: Passes = defaultdict(lambda: [[] for _ in range(evidence.ranks)])
    trained = trained_loaders(evidence)
    for rank in range(evidence.ranks):
        for event in evidence.real.of(rank, "batch"):
            if event["grad"] and event["key"] in trained:
                found[event["key"], event["passed"]][rank].append(event)
    skipped = skipped_batches(evidence)
    return {place: _taken_in_turn(ranks, skipped) or ranks for place, ranks in found.items()}


def _taken_in_turn(ranks: list[list[Event]], skipped: list[set[Place]]) -> list[list[Event]] | None:
    """The batches that each rank trains on, if no two ranks train on batches with one number; None otherwise."""
    used = [[e for e in events if _place(e) not in own] for events, own in zip(ranks, skipped, strict=True)]
    numbers = [{event["number"] for event in events} for events in used]
    return used if any(skipped) and all(numbers) and disjoint(numbers) else None


def disjoint(parts: Sequence[Collection[int]]) -> bool:
    """Whether no number is in two of the parts."""
    return len(set().union(*parts)) == sum(len(set(part)) for part in parts)


def skipped_batches(evidence: Evidence) -> list[set[Place]]:
    """By rank: batches that it is given in a pass that it trains on, and has no backward pass for.

    Where several backward passes follow a batch, batches may be read before they are used: then none is known to be
    skipped.
    """
    return [_skipped(events) for events in evidence.real.events]


def _skipped(events: Sequence[Event]) -> set[Place]:
    counts: dict[str, dict[Place, int]] = defaultdict(dict)
    last: dict[str, Place] = {}
    unfinished: dict[str, Place] = {}
    backwards = 0
    for event in events:
        if event["kind"] == "batch" and event["grad"]:
            last = {**(last if not backwards else {}), event["key"]: _place(event)}
            unfinished[event["key"]] = _place(event)
            counts[event["key"]][_place(event)] = backwards = 0
        elif event["kind"] == "epoch_end" and not event["cut"]:
            unfinished.pop(event["key"], None)
            last.pop(event["key"], None)
        elif event["kind"] == "backward" and not event.get("again"):
            backwards += 1
            for key, place in last.items():
                counts[key][place] = backwards
    one_each = [each for each in counts.values() if max(each.values()) == 1]
    skipped = {place for each in one_each for place, count in each.items() if not count}
    used = {place[:2] for each in one_each for place, count in each.items() if count}
    return {place for place in skipped.difference(unfinished.values()) if place[:2] in used}


def ranks_skip_other_batches(evidence: Evidence) -> bool:
    """Whether the ranks do not skip the same batches, so that one process skips others."""
    first, *others = skipped_batches(evidence)
    return any(own != first for own in others)


def _place(event: Event) -> Place:
    return event["key"], event["passed"], event["number"]


def trained_loaders(evidence: Evidence) -> set[str]:
    """Loaders between whose batches there were backward passes."""
    return {key for key, _ in trained_passes(evidence)}


def trained_passes(evidence: Evidence) -> set[tuple[str, int]]:
    """Passes over loaders with a backward after a batch; not passes that only read the first batch."""
    found: set[tuple[str, int]] = set()
    last: tuple[str, int] | None = None
    for event in evidence.real.events[0]:
        if event["kind"] == "batch":
            last = (event["key"], event["passed"]) if event["grad"] else None
        elif event["kind"] == "backward" and last is not None:
            found.add(last)
    return found


def loader_of(evidence: Evidence, key: str, rank: int = 0) -> Event:
    return next((event for event in evidence.real.of(rank, "loader") if event["key"] == key), {})


def sampler_states(evidence: Evidence, key: str) -> list[Event | None]:
    """The DistributedSampler's state on each rank, at the first pass."""
    found: list[Event | None] = []
    for rank in range(evidence.ranks):
        event = next((event for event in evidence.real.of(rank, "epoch") if event["key"] == key), None)
        found.append(event["distributed"] if event else None)
    return found


def base_indices(evidence: Evidence, key: str, rank: int, events: list[Event]) -> list[int]:
    """Indices into the data set below any Subset, in the order of the samples."""
    places = loader_of(evidence, key, rank).get("subset")
    indices = [index for event in events for index in event["indices"] or ()]
    return [places[index] for index in indices] if places is not None else indices


def drawn_with_replacement(evidence: Evidence, ranks: list[list[Event]]) -> bool:
    """Whether a rank gets samples more than once in a pass, beyond padding: then ranks may get the same ones, and not all."""
    every = [[index for event in events for index in event["indices"] or ()] for events in ranks]
    return any(len(own) - len(set(own)) > evidence.ranks for own in every)
