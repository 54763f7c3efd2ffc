"""Where the calls of ranks part: a call inside a helper function is told with its caller's line, if other ranks do not
have that line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..event_journal import Event
from ..evidence import Evidence

Chain = tuple[str, ...]
"""The script's lines of one call, the outermost first."""

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_LIBRARY = re.compile(r"[/\\](lib[/\\]python3|site-packages|dist-packages)|^<|ddpcheck[/\\]audit")


def chain_of(event: Event) -> Chain:
    return (*reversed(event.get("callers", ())), event["line"])


def where_calls_part(chain: Chain, others: Iterable[Chain]) -> str:
    """The outermost line that no other chain has after the same lines, and the line of the call itself."""
    known = {other[: depth + 1] for other in others for depth in range(len(other))}
    outer = next((line for depth, line in enumerate(chain) if chain[: depth + 1] not in known), chain[-1])
    return outer if outer == chain[-1] else f"{outer} (through {chain[-1]})"


def where_it_waits(evidence: Evidence, rank: int) -> str:
    """The script's line on the stack of a hung rank, where it parts from the other ranks' stacks, or from their calls if
    they have ended.
    """
    stacks = [_on_stack(stack) for stack in evidence.real.stacks]
    own = stacks[rank] if rank < len(stacks) else ()
    if own:
        others = [chain for other, chain in enumerate(stacks) if other != rank and chain]
        return where_calls_part(own, others or _calls_of_others(evidence, rank))
    events = [event for event in evidence.real.events[rank] if event.get("line")]
    return str(events[-1]["line"]) if events else ""


def chain_on_stack(evidence: Evidence, rank: int) -> Chain:
    """The lines on the stack of a hung rank, with the files' names as events have them; empty if there is no stack."""
    known = {_name(file): file for file in evidence.sources}
    stack = evidence.real.stacks[rank] if rank < len(evidence.real.stacks) else ""
    frames = [each.rpartition(":") for each in _on_stack(stack)]
    return tuple(f"{known.get(file, file)}:{line}" for file, _, line in frames)


def _on_stack(stack: str) -> Chain:
    frames = [f"{_name(file)}:{line}" for file, line in _FRAME.findall(stack) if not _LIBRARY.search(file)]
    return tuple(reversed(frames))


def _calls_of_others(evidence: Evidence, rank: int) -> Iterable[Chain]:
    for other, events in enumerate(evidence.each_rank("collective", "forward")):
        if other != rank:
            yield from (tuple(map(_name, chain_of(event))) for event in events)


def _name(path: str) -> str:
    return path.rpartition("/")[2]
