"""Passes over the loaders of a run, and the samples in them."""

from __future__ import annotations

from collections import defaultdict

from ..event_journal import Event
from ..evidence import Evidence

Passes = dict[tuple[str, int], list[list[Event]]]
"""The batches of each rank, by the loader's key and the pass."""


def training_passes(evidence: Evidence) -> Passes:
    """The training batches of each rank, by loader and pass."""
    found: Passes = defaultdict(lambda: [[] for _ in range(evidence.ranks)])
    trained = trained_loaders(evidence)
    for rank in range(evidence.ranks):
        for event in evidence.real.of(rank, "batch"):
            if event["grad"] and event["key"] in trained:
                found[event["key"], event["passed"]][rank].append(event)
    return dict(found)


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
