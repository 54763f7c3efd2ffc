"""Hypotheses about a rank that failed in a collective or a message."""

from __future__ import annotations

import re

from ...causes import Cause, collectives
from ...causes import operations as causes
from ...job import Broadcast, Layout, Operation, SendRecv
from .evidence import OF_A_TENSOR, FailedRank, about_a_message, is_empty

_OF_A_ROOT = re.compile(r"(?i)\b(invalid|bad|wrong|unknown|no) root\b|\broot\b.*\b(range|rank|group)\b")
"""Words of an error about a root outside the group."""


def root_not_found(of: FailedRank) -> Cause | None:
    """The root's number in the world was taken for its place in the group, or the reverse."""
    operation = of.operation
    if not isinstance(operation, Broadcast) or not operation.group or not _OF_A_ROOT.search(of.culprit.error):
        return None
    return causes.ROOT_NOT_FOUND(root=operation.root, group=operation.group)


def other_message(of: FailedRank) -> tuple[Cause, ...]:
    """The error reports a mismatch: the receiver may have got the message of another rank or another call."""
    if not isinstance(of.operation, SendRecv) or not of.raised:
        return ()
    said = [line for line in of.culprit.error.splitlines() if not line.startswith("  ")]
    sent = [each.pairs for each in of.job.operations if isinstance(each, SendRecv)]  # a sender may be ahead
    sources = tuple(sorted({source for pairs in sent for source, dest in pairs if dest == of.culprit.rank}))
    if not sources or not any(map(about_a_message, said)):
        return ()
    ignored = (causes.SOURCE_IGNORED(sources=sources),) if len(sources) > 1 else ()
    return (*ignored, causes.MESSAGES_OUT_OF_ORDER())


def layouts_differ(of: FailedRank) -> Cause | None:
    """Ranks give arrays of different layouts, and no earlier call with such layouts succeeded."""
    mixed = _has_layout(of.operation, "mixed") and not any(_has_layout(each, "mixed") for each in of.before)
    return collectives.LAYOUTS_DIFFER() if mixed or _has_layout(of.operation, "varied") else None


def empty_array(of: FailedRank) -> tuple[Cause, ...]:
    return (causes.EMPTY_ARRAY(), *_or_its_dtype(of)) if is_empty(of.operation) and of.raised else ()


def zero_dimensions(of: FailedRank) -> tuple[Cause, ...]:
    operation = of.operation
    scalar = isinstance(operation, OF_A_TENSOR) and operation.tensor.shape == () and of.raised
    return (causes.ZERO_DIMENSIONS(), *_or_its_dtype(of)) if scalar else ()


def _or_its_dtype(of: FailedRank) -> tuple[Cause, ...]:
    """An explanation other than the shape: a dtype that no earlier operation had."""
    made = of.made
    before = [each.tensor.dtype for each in of.before if isinstance(each, OF_A_TENSOR)]
    if not isinstance(made, OF_A_TENSOR) or not before or made.tensor.dtype in before:
        return ()
    return (causes.NEW_DTYPE(dtype=made.tensor.dtype),)


def _has_layout(operation: Operation, layout: Layout) -> bool:
    return isinstance(operation, OF_A_TENSOR) and operation.tensor.layout == layout
