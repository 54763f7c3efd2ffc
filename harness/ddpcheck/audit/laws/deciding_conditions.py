"""Which condition of the script decides whether a rank makes a call: read from the way between its last call and this one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest

from ..conditions import Condition, Source
from .call_sites import Chain

_MOST = 2


def deciding_condition(sources: Mapping[str, Source], before: Chain, made: Chain) -> str:
    """The condition as file:line and text; empty if the source shows none, or more than two.

    before: the lines of a call that all ranks made. made: those of the next call, which some ranks made.
    """
    found = {
        f"{file}:{each.line} ({each.text})": each
        for file, start, end in _segments(sources, before, made)
        if file in sources
        for each in _between(sources[file], start, end)
    }
    shown = [text for text, each in found.items() if not each.loop] or list(found)
    return " or ".join(shown) if len(shown) <= _MOST else ""


def _segments(sources: Mapping[str, Source], before: Chain, made: Chain) -> Iterator[tuple[str, int, int]]:
    """File, first and last line of the way in each function on the stack. The first line is 0 where the way begins with the
    function.
    """
    depth = next((n for n, (a, b) in enumerate(zip_longest(before, made)) if a != b), len(made))
    if depth == len(made) or depth == len(before):
        depth = _innermost_loop(sources, made, min(depth, len(made)) - 1)
    for place in range(max(depth, 0), len(made)):
        file, end = _parsed(made[place])
        start = 0
        if place == depth and place < len(before):
            other, line = _parsed(before[place])
            source = sources.get(file)
            if other == file and source is not None and source.function(line) == source.function(end):
                start = line
        yield file, start, end


def _innermost_loop(sources: Mapping[str, Source], chain: Chain, depth: int) -> int:
    """The innermost place, from `depth` outwards, that a loop may reach again; -1 if there is none."""
    for place in range(depth, -1, -1):
        file, line = _parsed(chain[place])
        if file in sources and sources[file].loop_around(line) is not None:
            return place
    return -1


def _between(source: Source, start: int, end: int) -> list[Condition]:
    """The conditions of one function that decide whether `end` follows `start`. An `end` before `start` is reached by a loop."""
    loop = source.loop_around(start, end) if start and end <= start else None
    start = max((each.blocks[0].last for each in source.conditions if _has_ended(each, start, end)), default=start)
    found = []
    for each in source.conditions:
        if each.function != source.function(end) or (loop is not None and each.line < loop.line):
            continue
        passed = start < each.line <= end if loop is None else each.line > start or each.line < end
        enters = any(block.holds(end) and (loop is not None or not block.holds(start)) for block in each.blocks)
        around = source.loop_around(each.line - 1 if each.loop else each.line)
        in_loop = around is not None and any(
            line == around.line or around.blocks[0].holds(line) for line in (start, end)
        )
        leaves = any(
            (block.returns or (block.breaks and in_loop)) and not block.holds(end) and not block.holds(start)
            for block in each.blocks
        )
        if enters or (passed and leaves):
            found.append(each)
    return found


def _has_ended(loop: Condition, start: int, end: int) -> bool:
    """Whether `start` is the line of a loop that has ended before `end`."""
    return loop.loop and loop.line == start and end > loop.blocks[0].last


def _parsed(line: str) -> tuple[str, int]:
    file, _, number = line.rpartition(":")
    return file, int(number) if number.isdigit() else 0
