"""Which condition of the script decides whether a rank makes a call: read from the way between its last call and this one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True)
class _Way:
    """From line `start` to `end` of one function, round `loop` if the end comes first. start: 0 where the function begins."""

    start: int
    end: int
    loop: Condition | None

    def passes(self, condition: Condition) -> bool:
        if self.loop is None:
            return self.start < condition.line <= self.end
        return condition.line > self.start or condition.line < self.end

    def enters(self, condition: Condition) -> bool:
        """Whether the end is in a block that the way does not begin in, or begins anew."""
        return any(
            block.holds(self.end) and (self.loop is not None or not block.holds(self.start))
            for block in condition.blocks
        )

    def leaves(self, condition: Condition, around: Condition | None) -> bool:
        """Whether a block would end the way before its end. around: the loop around the condition."""
        in_loop = around is not None and any(around.is_at(line) for line in (self.start, self.end))
        return any(
            (block.returns or (block.breaks and in_loop)) and not block.holds(self.end) and not block.holds(self.start)
            for block in condition.blocks
        )


def _between(source: Source, start: int, end: int) -> Iterator[Condition]:
    """The conditions of one function that decide whether `end` follows `start`."""
    loop = source.loop_around(start, end) if start and end <= start else None
    begin = max((each.blocks[0].last for each in source.conditions if _has_ended(each, start, end)), default=start)
    way = _Way(begin, end, loop)
    for each in source.conditions:
        if each.function != source.function(end) or (loop is not None and each.line < loop.line):
            continue
        around = source.loop_of(each)
        if way.enters(each) or (way.passes(each) and way.leaves(each, around)) or _breaks_out(each, around, way):
            yield each


def _breaks_out(condition: Condition, around: Condition | None, way: _Way) -> bool:
    """Whether the condition ends a loop that the way begins in and leaves, perhaps after another round."""
    left = around is not None and around.blocks[0].holds(way.start) and not around.blocks[0].holds(way.end)
    return left and any(block.breaks and not block.holds(way.start) for block in condition.blocks)


def _has_ended(loop: Condition, start: int, end: int) -> bool:
    """Whether `start` is the line of a loop that has ended before `end`."""
    return loop.loop and loop.line == start and end > loop.blocks[0].last


def _parsed(line: str) -> tuple[str, int]:
    file, _, number = line.rpartition(":")
    return file, int(number) if number.isdigit() else 0
