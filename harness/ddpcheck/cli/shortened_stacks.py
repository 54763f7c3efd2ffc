"""Stacks with the frames that say most: the outermost, the innermost, and the innermost outside libraries."""

from __future__ import annotations

import re
from collections.abc import Sequence

_OUTER, _INNER = 2, 6
"""Lines of a stack that are shown: so many of the outermost and of the innermost."""
_FRAME = re.compile(r'\s*File "')
_OF_A_LIBRARY = re.compile(r'[/\\](lib[/\\]python3|site-packages)|"<frozen ')
"""Matches a frame whose file is in a library."""
_THREAD = re.compile(r"(Current thread|Thread) 0x")
"""Begins the frames of a thread where Python tells of a crash, innermost frame first."""
_MODULES = "Extension modules:"


def shortened(detail: str) -> str:
    """The text without the middle of its stack."""
    lines = detail.splitlines()
    if any(map(_THREAD.match, lines)):
        return "\n".join(_of_a_crash(lines))
    left_out = len(lines) - _OUTER - _INNER
    if left_out <= 1:
        return detail
    own = _last_own(lines)
    if not _OUTER <= own.start < len(lines) - _INNER:
        return "\n".join((*lines[:_OUTER], f"    ... {left_out} lines", *lines[-_INNER:]))
    inner = max(own.stop, len(lines) - _INNER)
    kept = lines[:_OUTER], lines[own.start : own.stop], lines[inner:]
    between = _gap(lines[_OUTER : own.start]), _gap(lines[own.stop : inner])
    return "\n".join((*kept[0], *between[0], *kept[1], *between[1], *kept[2]))


def _of_a_crash(lines: Sequence[str]) -> list[str]:
    """What was said around the stacks, and the innermost frames of one thread down to the first outside libraries.

    The thread is the one that crashed; if that has no such frame, because it is not Python's, another that has one.
    """
    begins = [place for place, line in enumerate(lines) if _THREAD.match(line)]
    stacks = [_frames(lines[begin:]) for begin in begins]
    before, after = lines[: begins[0]], lines[begins[-1] + len(stacks[-1]) :]
    threads = sorted(stacks, key=lambda stack: (_first_own(stack) == 0, stack[0].startswith("Thread")))
    chosen = threads[0]
    own = _first_own(chosen) or min(_OUTER, len(chosen) - 1)
    inner = chosen[:own] if own <= _INNER else [*chosen[:_OUTER], *_gap(chosen[_OUTER:own])]
    shown = [*inner, *chosen[own : own + 1], *_gap(chosen[own + 1 :])]
    return [line for line in (*before, *shown, *after) if line.strip() and not line.startswith(_MODULES)]


def _frames(lines: Sequence[str]) -> list[str]:
    """The line that names the thread, and its frames."""
    end = next((place for place, line in enumerate(lines[1:], 1) if not _FRAME.match(line)), len(lines))
    return list(lines[:end])


def _first_own(stack: Sequence[str]) -> int:
    """The place of the first frame outside libraries; 0, which is the thread's name, if there is none."""
    return next((place for place, line in enumerate(stack[1:], 1) if not _OF_A_LIBRARY.search(line)), 0)


def _gap(lines: Sequence[str]) -> Sequence[str]:
    return [f"    ... {len(lines)} lines"] if len(lines) > 1 else lines


def _last_own(lines: Sequence[str]) -> range:
    """The lines of the innermost one or two frames outside libraries: they show which call waits."""
    begins = [place for place, line in enumerate(lines) if _FRAME.match(line)]
    own = [place for place in begins if not _OF_A_LIBRARY.search(lines[place])]
    if not own or own[-1] == begins[-1]:
        return range(0)
    last = begins.index(own[-1])
    both = len(own) > 2 and own[-2] == begins[last - 1]  # the first of them is the harness's call
    return range(begins[last - both], begins[last + 1])
