"""Where the ways of the ranks part: the first call that not all ranks make next, and the condition that decides it."""

from __future__ import annotations

from dataclasses import dataclass

from ..event_journal import Event
from ..evidence import Evidence
from .call_sites import Chain, chain_of, chain_on_stack
from .deciding_conditions import deciding_condition

CALLS = ("forward", "backward", "collective", "step", "epoch_end")
_ENDED = ("finished", "enough")
_START, _END = "the start", "its end"


@dataclass(frozen=True)
class Parting:
    """before: the last call that all ranks made. line: of the next call of `ranks`; other: of another rank's, or its end.
    condition: as file:line and text.
    """

    before: str
    ranks: tuple[int, ...]
    line: str
    other: str
    condition: str


def parting(evidence: Evidence) -> Parting | None:
    """None if all ranks make the same calls as far as they come, or if the source shows no condition."""
    ways = [_way(evidence, rank) for rank in range(evidence.ranks)]
    number = next((n for n, together in enumerate(zip(*ways, strict=False)) if len(set(together)) > 1), None)
    if number is None:
        return None
    before, nexts = ways[0][number - 1] if number else (), [way[number] for way in ways]
    for made in nexts:
        if made and (condition := deciding_condition(evidence.sources, before, made)):
            ranks = tuple(rank for rank, each in enumerate(nexts) if each == made)
            other = next((each[-1] if each else _END for each in nexts if each != made), _END)
            return Parting(before[-1] if before else _START, ranks, made[-1], other, condition)
    return None


def shared_call_before(evidence: Evidence, event: Event, rank: int) -> Event | None:
    """The last event with a line before this one that other ranks have as well."""
    others = {
        (each["kind"], each["line"])
        for other, events in enumerate(evidence.real.events)
        for each in events
        if other != rank and "line" in each
    }
    before = None
    for each in evidence.real.events[rank]:
        if each is event:
            break
        if each["kind"] in CALLS and (each["kind"], each["line"]) in others:
            before = each
    return before


def condition_between(evidence: Evidence, before: Event | None, event: Event) -> str:
    """The condition that decides whether `event` follows `before`; empty if the source shows none."""
    return deciding_condition(evidence.sources, chain_of(before), chain_of(event)) if before is not None else ""


def _way(evidence: Evidence, rank: int) -> list[Chain]:
    """The calls of a rank in order, and where it waits; an empty one stands for its end."""
    made = [chain_of(event) for event in evidence.real.of(rank, *CALLS) if _is_of_all(evidence, event)]
    if evidence.real.end(rank)["why"] in _ENDED:
        return [*made, ()]
    waits = chain_on_stack(evidence, rank)
    return [*made, waits] if waits and [waits] != made[-1:] else made


def _is_of_all(evidence: Evidence, event: Event) -> bool:
    """Whether all ranks must make the call."""
    return event["kind"] != "collective" or (not event["point"] and event["group"] == evidence.ranks)
