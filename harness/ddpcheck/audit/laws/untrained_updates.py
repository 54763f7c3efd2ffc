"""Finds the line at which only some ranks write to a parameter that no optimizer holds."""

from __future__ import annotations

from dataclasses import dataclass

from ..event_journal import Event
from ..evidence import Evidence
from .call_sites import Chain, chain_of, where_calls_part
from .parting import CALLS, condition_between, shared_call_before


@dataclass(frozen=True)
class Update:
    """condition: as file:line and text, or the line around which it must be if the source shows none."""

    ranks: tuple[int, ...]
    line: str
    condition: str


def update_of_some_ranks(evidence: Evidence, name: str) -> Update | None:
    """None if no line that writes to the parameter is known, or if every rank has such lines of its own."""
    writes = [_writes(evidence, rank, name) for rank in range(evidence.ranks)]
    shared = set(writes[0]).intersection(*writes[1:])
    apart = [{chain: event for chain, event in own.items() if chain not in shared} for own in writes]
    ranks = tuple(rank for rank, own in enumerate(apart) if own)
    if not ranks or any(set(apart[rank]) != set(apart[ranks[0]]) for rank in ranks):
        return None
    chain, event = next(iter(apart[ranks[0]].items()))
    others = [
        chain_of(each)
        for rank, events in enumerate(evidence.each_rank("write", *CALLS))
        if rank not in ranks
        for each in events
    ]
    condition = condition_between(evidence, shared_call_before(evidence, event, ranks[0]), event)
    line = where_calls_part(chain, others)
    return Update(ranks, line, condition or f"the condition around {line}")


def _writes(evidence: Evidence, rank: int, name: str) -> dict[Chain, Event]:
    """The lines that write to the parameter on this rank, in order."""
    numbers = {number for event in evidence.real.of(rank, "written") for number in event["names"].get(name, ())}
    return {chain_of(event): event for event in evidence.real.of(rank, "write") if event["number"] in numbers}
