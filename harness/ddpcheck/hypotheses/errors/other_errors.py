"""Hypotheses about a rank that failed in any operation."""

from __future__ import annotations

import re

from ...causes import Cause, Kind, ranks
from ...causes import operations as causes
from ...job import Sample, Sleep, Train
from .evidence import FailedRank, about_a_message

_OF_ANY_TRACE = {kind.id for kind in vars(ranks).values() if isinstance(kind, Kind)}
"""Causes that follow from the positions of the ranks, in any check."""
_TOGETHER = ("backward", "all_reduce", "broadcast", "all_gather", "reduce_scatter", "barrier", "wait")
_OF_TIME = re.compile(r"(?<!run)time")
"""Words of an error about a time limit, in lower case; "RuntimeError" contains "time", and is excluded."""
_OF_A_CONNECTION = re.compile(r"connection|closed|reset by peer|broken pipe")
"""Words of an error about a rank that has left, in lower case."""


def few_samples(of: FailedRank) -> Cause | None:
    """All ranks refuse a data set with fewer samples than ranks."""
    operation = of.operation
    if not isinstance(operation, Sample) or operation.length >= of.job.world_size:
        return None
    everywhere = len(of.trace.raised) == len(of.trace.ranks)
    return causes.FEW_SAMPLES() if everywhere and "ModuleNotFoundError" not in of.culprit.error else None


def gave_up_waiting(of: FailedRank) -> Cause | None:
    """The error is about time, and a rank was late."""
    late = [earlier for earlier in of.before if isinstance(earlier, Sleep)]
    if not late or not of.raised or not _OF_TIME.search(of.last_line.lower()):
        return None
    return causes.GAVE_UP_WAITING(rank=of.culprit.rank, late=late[-1].rank, seconds=late[-1].seconds)


def run_ended_by_some(of: FailedRank) -> tuple[Cause, ...]:
    """In a training run, other ranks have ended, and the error is about a message or a connection. If the check knows why
    they may have ended, either may be the cause.
    """
    ended = of.through(None) if isinstance(of.operation, Train) and of.raised else ()
    of_ranks = about_a_message(of.last_line) or _OF_A_CONNECTION.search(of.last_line.lower())
    if not ended or not of_ranks:
        return ()
    known = tuple(cause for cause in of.own if cause.certainty == "likely")
    some = causes.RUN_ENDED_BY_SOME(ranks=ended, rank=of.culprit.rank)
    return (*known, some.but("likely")) if known else (some,)


def of_the_check(of: FailedRank) -> tuple[Cause, ...]:
    """What the check found. If the rank raised and others succeeded, it may also have met another call's message; an error
    about something else is its own, on a path that the others do not take.
    """
    found = tuple(cause for cause in of.own if cause.id not in _OF_ANY_TRACE)
    through = of.through(getattr(of.operation, "group", None))
    if not of.raised or of.operation.kind not in _TOGETHER or not through:
        return found
    if about_a_message(of.last_line):
        return (*found, causes.OTHER_MESSAGE_RECEIVED(ranks=through, rank=of.culprit.rank))
    raised = tuple(cause for cause in of.own if ranks.RANK_RAISED.explains((cause,)))
    return (*found, *raised, causes.TAKES_ANOTHER_PATH(ranks=through, rank=of.culprit.rank))
