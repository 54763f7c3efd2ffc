"""A rank that failed in an operation of a Job."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ...causes import Cause
from ...job import AllGather, AllReduce, Broadcast, Job, Operation, ReduceScatter, Wait
from ...trace import RankTrace, Trace

OF_A_TENSOR = (AllReduce, Broadcast, AllGather, ReduceScatter)

_OF_A_MESSAGE = re.compile(
    r"(?i)trunca|size|shape|bytes|length|frame|header|message|expected|match|unpack|broadcast together|too (large|small)"
)
"""Words of an error about another message than the expected one."""
_OF_AN_ARRAY = re.compile(r"(?i)^\w+: \w+\(\): |zero-size|numel\(\) == 0")
"""Words of an error that torch and NumPy raise for an array that they cannot compute with, whatever was received."""


@dataclass(frozen=True)
class FailedRank:
    """A rank that failed in an operation, and is the first to fail. own: the causes that the check has found itself."""

    own: tuple[Cause, ...]
    culprit: RankTrace
    job: Job
    trace: Trace

    @cached_property
    def position(self) -> int:
        """Of the operation in the Job."""
        assert self.culprit.last is not None
        return self.culprit.last.operation

    @property
    def operation(self) -> Operation:
        """The operation in which the rank failed."""
        return self.job.operations[self.position]

    @property
    def made(self) -> Operation:
        """The operation in which the rank failed, or for which it waited."""
        operation = self.operation
        return self.job.operations[operation.operation] if isinstance(operation, Wait) else operation

    @property
    def before(self) -> tuple[Operation, ...]:
        return self.job.operations[: self.position]

    @property
    def raised(self) -> bool:
        return self.culprit.outcome == "raised"

    @property
    def last_line(self) -> str:
        return self.culprit.error.rpartition("\n")[2]

    def through(self, group: Sequence[int] | None) -> tuple[int, ...]:
        """The ranks of this group that completed the operation."""
        ranks = self.trace.ranks
        done = [rank for rank in ranks if rank.outcome == "done" or (rank.last and rank.last.operation > self.position)]
        return tuple(rank.rank for rank in done if group is None or rank.rank in group)


def group_in_which_it_hangs(of: FailedRank) -> tuple[int, ...] | None:
    """The group of the hanging collective, if the group has only some ranks and all others do not hang."""
    group: tuple[int, ...] | None = getattr(of.made, "group", None)
    stuck = {rank.rank for rank in of.trace.ranks if rank.outcome == "hung"}
    return group if group is not None and of.culprit.outcome == "hung" and stuck <= {*group} else None


def is_empty(operation: Operation) -> bool:
    return isinstance(operation, OF_A_TENSOR) and 0 in operation.tensor.shape


def about_a_message(line: str) -> bool:
    """Whether this line of an error may be about another message than the expected one."""
    return bool(_OF_A_MESSAGE.search(line)) and not _OF_AN_ARRAY.search(line)
