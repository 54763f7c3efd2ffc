"""Hypotheses about a rank that failed in a backward."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...causes import Cause
from ...causes import operations as causes
from ...job import Backward, Operation, Predict, ZeroGrad
from .evidence import FailedRank

_OF_TORCH = re.compile(r"gradient which is undefined, but still allreduced by DDP reducer")
"""Words by which torch reports an error in its DistributedDataParallel."""


def undefined_in_torch(of: FailedRank) -> Cause | None:
    return causes.UNDEFINED_IN_TORCH() if of.raised and _OF_TORCH.search(of.culprit.error) else None


def no_samples(of: FailedRank) -> Cause | None:
    """The rank raised on its own empty batch."""
    operation, rank = of.operation, of.culprit.rank
    empty = isinstance(operation, (Backward, Predict)) and of.raised and not operation.samples[rank]
    return causes.NO_SAMPLES(rank=rank) if empty else None


def idle_rank_skips(of: FailedRank) -> Cause | None:
    """Ranks without samples may not take part in the reductions."""
    samples = of.operation.samples if isinstance(of.operation, Backward) else ()
    idle = tuple(rank for rank, own in enumerate(samples) if not own)
    return causes.IDLE_RANK_SKIPS(ranks=idle) if idle else None


def evaluation_communicates(of: FailedRank) -> Cause | None:
    """Only some ranks evaluated before: a reduction of theirs would wait for the others."""
    for position, earlier in enumerate(of.before if isinstance(of.operation, Backward) else ()):
        if (
            isinstance(earlier, Predict)
            and not earlier.idle
            and 0 < sum(map(bool, earlier.samples)) < of.job.world_size
        ):
            alone = tuple(rank for rank, samples in enumerate(earlier.samples) if samples)
            return causes.EVALUATION_COMMUNICATES(operation=position, ranks=alone)
    return None


def dropped_window_remembered(of: FailedRank) -> Cause | None:
    """Gradients accumulated inside no_sync() were discarded before they were synchronised."""
    dropped = _dropped_window(of.before) if of.raised and isinstance(of.operation, Backward) else None
    return causes.DROPPED_WINDOW_REMEMBERED(backward=dropped[0], cleared=dropped[1]) if dropped else None


def messages_differ_since(of: FailedRank) -> Cause | None:
    """In an earlier backward, ranks used different branches of the model."""
    for position, earlier in enumerate(of.before if isinstance(of.operation, Backward) else ()):
        if isinstance(earlier, Backward) and len(set(earlier.branches)) > 1:
            return causes.MESSAGES_DIFFER_SINCE(operation=position)
    return None


def unused_left_out(of: FailedRank) -> Cause | None:
    """In this backward, ranks use different branches of the model."""
    differ = isinstance(of.operation, Backward) and len(set(of.operation.branches)) > 1
    return causes.UNUSED_LEFT_OUT() if differ else None


def _dropped_window(operations: Sequence[Operation]) -> tuple[int, int] | None:
    """The last backward that was never synchronised, and the zero_grad after it."""
    found = None
    accumulating: list[int] = []
    for position, operation in enumerate(operations):
        if isinstance(operation, Backward):
            accumulating = [] if operation.sync else [position]
        elif isinstance(operation, ZeroGrad):
            found = (accumulating.pop(), position) if accumulating else found
    return found
