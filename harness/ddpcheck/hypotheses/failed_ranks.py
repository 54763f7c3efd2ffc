"""Causes of a rank that failed or hangs, from its error and the positions of all ranks in the Job."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ..causes import Cause, ranks
from ..trace import IMPORTING, RankTrace, Trace

_OF_GLOO = re.compile(r"op\.preamble\.length <= op\.nbytes\.?\s*(\d+) vs\.? (\d+)")
_OF_CPP = re.compile(r"what\(\):\s*(?:\[enforce fail at [^]]*\]\s*)?(.+)")
_FRAME = re.compile(r'^  File "(?:.*[/\\])?([^"/\\]+)", line (\d+), in (.+)$', re.MULTILINE)


def why_failed(culprit: RankTrace) -> tuple[Cause, ...]:
    """The certain facts of a rank that failed without hanging: the kind of failure, and an exception's type and
    place.
    """
    if culprit.outcome == "invalid":
        return (ranks.RESULT_VIOLATES_CONTRACT(operation=culprit.last.kind if culprit.last else "start-up"),)
    if sizes := _OF_GLOO.search(culprit.error):
        return (ranks.MESSAGE_TOO_LARGE(sent=int(sizes.group(1)), room=int(sizes.group(2))),)
    if culprit.outcome == "died":
        said = _OF_CPP.search(culprit.error)
        return (ranks.UNCAUGHT_COMPILED_ERROR(message=said.group(1).strip()) if said else ranks.RANK_DIED(),)
    frames = _FRAME.findall(culprit.error)
    file, line, function = frames[-1] if frames else ("", "", "")
    error, _, _ = last_words(culprit).partition(":")
    return (ranks.RANK_RAISED(error=error, at=f"{file}:{line} in {function}" if file else "a place without a stack"),)


_NOT_WAITING_FOR_RANKS = {
    '/subprocess.py", line': ranks.WAITS_FOR_A_PROGRAM,
    IMPORTING: ranks.IMPORTS_MODULES,
}
"""Stack frames of a rank that waits for no other rank."""

_FUTURE = '/concurrent/futures/_base.py", line'


_READING = {"sample", "resume_sampling", "draw"}
"""Operations in which no rank needs to wait for another."""


def why_stuck_in(group: tuple[int, ...], trace: Trace, stuck: Sequence[RankTrace]) -> tuple[Cause, ...]:
    """The causes of a hang, from the positions of the group's members only."""
    if len(group) == 1:
        return (ranks.GROUP_WAITS_WITHOUT_PEERS(),)
    return why_stuck(replace(trace, ranks=tuple(trace.ranks[rank] for rank in group)), stuck)


def why_stuck(trace: Trace, stuck: Sequence[RankTrace]) -> tuple[Cause, ...]:
    """The causes of a hang, from the positions of all ranks."""
    done = tuple(rank.rank for rank in trace.ranks if rank.outcome == "done")
    places = {rank.last.operation for rank in stuck if rank.last}
    kinds = {rank.last.kind for rank in stuck if rank.last}
    for sign, kind in _NOT_WAITING_FOR_RANKS.items():
        if at_it := tuple(rank.rank for rank in stuck if sign in rank.stack):
            return (kind(ranks=at_it),)
    if kinds == {"close"}:
        return (ranks.CLOSE_WAITS(),)
    if kinds and kinds <= _READING:
        return (ranks.LOCAL_OPERATION_DOES_NOT_END(operations=tuple(sorted(kinds))),)
    if len(trace.ranks) == 1:
        return (ranks.WAITS_WITHOUT_PEERS(),)
    if done and kinds == {"send_recv"}:
        return (ranks.SENT_MESSAGE_LOST(ranks=done),)
    if done and kinds == {"broadcast"}:
        return (ranks.BROADCAST_NOT_FORWARDED(done=done, stuck=tuple(rank.rank for rank in stuck)),)
    if done:
        return (ranks.LEFT_COLLECTIVE_EARLY(ranks=done),)
    if len(places) > 1:
        return (ranks.RANKS_IN_DIFFERENT_OPERATIONS(),)
    sending = tuple(rank.rank for rank in stuck if rank.unread and all(rank.unread))
    if len(sending) > 1:
        return (ranks.ALL_SEND_NONE_RECEIVES(ranks=sending),)
    in_threads = all(_FUTURE in rank.stack for rank in stuck)
    return (ranks.ALL_WAIT_IN_ONE_OPERATION(), *(ranks.WAITS_FOR_A_THREAD(),) * in_threads)


def last_words(culprit: RankTrace) -> str:
    """The last line of an error; of a traceback, the line with the exception."""
    lines = [line for line in culprit.error.strip().splitlines() if line.strip()]
    if culprit.outcome == "raised":
        stack = max((number for number, line in enumerate(lines) if line.startswith('  File "')), default=0)
        lines += [line for line in lines[stack:] if not line.startswith(" ")][:1]
    return lines[-1].strip() if lines else "no message"
