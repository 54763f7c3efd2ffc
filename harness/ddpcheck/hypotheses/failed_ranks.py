"""Hypotheses about a rank that failed or hangs, from its error and the positions of all ranks in the Job."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from ..causes import Cause, rendezvous
from ..causes import ranks as causes
from ..trace import IMPORTING, RankTrace, Trace

_OF_GLOO = re.compile(r"op\.preamble\.length <= op\.nbytes\.?\s*(\d+) vs\.? (\d+)")
_OF_CPP = re.compile(r"what\(\):\s*(?:\[enforce fail at [^]]*\]\s*)?(.+)")
_FRAME = re.compile(r'^  File "(?:.*[/\\])?([^"/\\]+)", line (\d+), in (.+)$', re.MULTILINE)

_FAULTS = {
    "SIGSEGV": "it read or wrote memory that it does not have",
    "SIGBUS": "it read or wrote memory that a file or device no longer backs",
    "SIGABRT": "it called abort()",
    "SIGFPE": "it divided an integer by 0",
    "SIGILL": "this processor lacks an instruction",
}
"""What compiled code did, by the signal that ended it."""
_OF_CRASH = re.compile(rf"was killed by ({'|'.join(_FAULTS)})\b")

_PROGRAM = '/subprocess.py", line'
_FUTURE = '/concurrent/futures/_base.py", line'
_THREAD = '/threading.py", line'
"""Stack frames of a rank that waits for another program, for a future of a thread, and for a thread."""

_READING = {"sample", "resume_sampling", "draw"}
"""Operations in which no rank needs to wait for another."""


@dataclass(frozen=True)
class Hang:
    """A Trace in which ranks hang. group: the only ranks that the hanging operation needs; None for all."""

    trace: Trace
    group: tuple[int, ...] | None = None

    @cached_property
    def stuck(self) -> tuple[RankTrace, ...]:
        return tuple(rank for rank in self.trace.ranks if rank.outcome == "hung")

    @cached_property
    def members(self) -> tuple[RankTrace, ...]:
        return self.trace.ranks if self.group is None else tuple(self.trace.ranks[rank] for rank in self.group)

    @property
    def done(self) -> tuple[int, ...]:
        """The members that ran all operations."""
        return tuple(rank.rank for rank in self.members if rank.outcome == "done")

    @property
    def kinds(self) -> set[str]:
        """The kinds of the operations in which ranks hang."""
        return {rank.last.kind for rank in self.stuck if rank.last}

    def showing(self, frame: str) -> tuple[int, ...]:
        """The ranks with this frame in their stacks."""
        return tuple(rank.rank for rank in self.stuck if frame in rank.stack)


def method_missing(culprit: RankTrace) -> Cause | None:
    """The Job needs a method that the implementation does not have."""
    return causes.METHOD_MISSING(method=culprit.missing) if culprit.missing else None


def result_violates_contract(culprit: RankTrace) -> Cause | None:
    """A method returned something that the contract does not allow."""
    if culprit.outcome != "invalid":
        return None
    return causes.RESULT_VIOLATES_CONTRACT(operation=culprit.last.kind if culprit.last else "start-up")


def message_too_large(culprit: RankTrace) -> Cause | None:
    """Gloo received more bytes than it expected."""
    sizes = _OF_GLOO.search(culprit.error)
    return causes.MESSAGE_TOO_LARGE(sent=int(sizes.group(1)), room=int(sizes.group(2))) if sizes else None


def uncaught_compiled_error(culprit: RankTrace) -> Cause | None:
    """C++ code threw an exception that nothing caught, which ended the process."""
    said = _OF_CPP.search(culprit.error) if culprit.outcome == "died" else None
    return causes.UNCAUGHT_COMPILED_ERROR(message=said.group(1).strip()) if said else None


def crashed(culprit: RankTrace) -> Cause | None:
    """A signal that compiled code causes ended the process."""
    said = _OF_CRASH.search(last_words(culprit)) if culprit.outcome == "died" else None
    return causes.CRASHED(signal=said.group(1), fault=_FAULTS[said.group(1)]) if said else None


def rank_died(culprit: RankTrace) -> Cause | None:
    return causes.RANK_DIED() if culprit.outcome == "died" else None


def rank_raised(culprit: RankTrace) -> Cause:
    """An exception, with its type and place."""
    frames = _FRAME.findall(culprit.error)
    file, line, function = frames[-1] if frames else ("", "", "")
    error, _, _ = last_words(culprit).partition(":")
    return causes.RANK_RAISED(error=error, at=f"{file}:{line} in {function}" if file else "a place without a stack")


def group_waits_without_peers(of: Hang) -> Cause | None:
    """The operation is one of a group with a single rank."""
    return causes.GROUP_WAITS_WITHOUT_PEERS() if of.group is not None and len(of.members) == 1 else None


def waits_for_a_program(of: Hang) -> Cause | None:
    waiting = of.showing(_PROGRAM)
    return causes.WAITS_FOR_A_PROGRAM(ranks=waiting) if waiting else None


def imports_modules(of: Hang) -> Cause | None:
    importing = of.showing(IMPORTING)
    return causes.IMPORTS_MODULES(ranks=importing) if importing else None


def still_exchanges_messages(of: Hang) -> Cause | None:
    """All hung ranks send or receive: a rank in a deadlock does neither."""
    moving = tuple(rank.rank for rank in of.stuck if rank.transferred)
    return causes.STILL_EXCHANGES_MESSAGES(ranks=moving) if moving and len(moving) == len(of.stuck) else None


def close_waits(of: Hang) -> Cause | None:
    return causes.CLOSE_WAITS() if of.kinds == {"close"} else None


def local_operation_does_not_end(of: Hang) -> Cause | None:
    """No other rank takes part in the operation."""
    local = of.kinds and of.kinds <= _READING
    return causes.LOCAL_OPERATION_DOES_NOT_END(operations=tuple(sorted(of.kinds))) if local else None


def waits_without_peers(of: Hang) -> Cause | None:
    return causes.WAITS_WITHOUT_PEERS() if len(of.members) == 1 else None


def sent_message_lost(of: Hang) -> Cause | None:
    """The other ranks have ended; their messages did not arrive."""
    return causes.SENT_MESSAGE_LOST(ranks=of.done) if of.done and of.kinds == {"send_recv"} else None


def broadcast_not_forwarded(of: Hang) -> Cause | None:
    """Some ranks have the root's array, and do not pass it on."""
    if not of.done or of.kinds != {"broadcast"}:
        return None
    return causes.BROADCAST_NOT_FORWARDED(done=of.done, stuck=tuple(rank.rank for rank in of.stuck))


def left_collective_early(of: Hang) -> Cause | None:
    return causes.LEFT_COLLECTIVE_EARLY(ranks=of.done) if of.done else None


def ranks_in_different_operations(of: Hang) -> Cause | None:
    places = {rank.last.operation for rank in of.stuck if rank.last}
    return causes.RANKS_IN_DIFFERENT_OPERATIONS() if len(places) > 1 else None


def all_send_none_receives(of: Hang) -> tuple[Cause, ...]:
    """Several ranks have both sent bytes that no rank reads, and not read bytes that were sent to them. If each waits for a
    thread, the thread sends, and the rank has perhaps taken a part of its message for the whole one.
    """
    sending = tuple(rank.rank for rank in of.stuck if rank.unread and all(rank.unread))
    if len(sending) < 2:
        return ()
    in_threads = {*of.showing(_THREAD), *of.showing(_FUTURE)}.issuperset(sending)
    return (*(rendezvous.SHORT_READ_TAKEN_FOR_ALL(),) * in_threads, causes.ALL_SEND_NONE_RECEIVES(ranks=sending))


def all_wait_in_one_operation(of: Hang) -> tuple[Cause, ...]:
    """Perhaps each for a thread of its own process."""
    in_threads = len(of.showing(_FUTURE)) == len(of.stuck)
    return (causes.ALL_WAIT_IN_ONE_OPERATION(), *(causes.WAITS_FOR_A_THREAD(),) * in_threads)


def right_when_repeated(sure: tuple[Cause, ...]) -> Cause | None:
    """A Job fails, and passes when it runs again. sure: the causes found so far."""
    return None if sure else causes.RIGHT_WHEN_REPEATED()


def last_words(culprit: RankTrace) -> str:
    """The last line of an error; of a traceback, the line with the exception."""
    lines = [line for line in culprit.error.rstrip().splitlines() if line.strip()]
    if culprit.outcome == "raised":
        stack = max((number for number, line in enumerate(lines) if line.startswith('  File "')), default=0)
        lines += [line for line in lines[stack:] if not line.startswith(" ")][:1]
    return lines[-1].strip() if lines else "no message"
