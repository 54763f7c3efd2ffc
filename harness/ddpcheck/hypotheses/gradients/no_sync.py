"""Evidence about a backward with different gradients inside and outside no_sync."""

from __future__ import annotations

from dataclasses import replace

from ...causes import Cause, gradients
from ...causes import replicas as causes
from ...job import Job
from ...oracle.auxiliary_terms import terms_of
from ...seeded_values import Array
from ..arrays import Evidence
from ..evidence import evidence_of_gradient
from .contributions import Contributions


def evidence_after_no_sync(made: Contributions, job: Job, expected: Array, rank: int) -> Evidence:
    """Hypotheses about a gradient of the second backward of two, the first of which was inside no_sync."""
    less = (gradients.DIVIDED_BY_MICRO_BATCHES(count=2),) * (len(made.own) == 2)
    late = (causes.NO_SYNC_LATE(),) * _equal_on_all_ranks(made)
    found = evidence_of_gradient(made, expected, rank)
    halved = ((gradients.DIVIDED_BY_MICRO_BATCHES(count=2), expected / 2),) * (len(made.own) != 2)
    otherwise = (*late, *_only_in_no_sync(job))
    return replace(found, less=less, alternatives=(*found.alternatives, *halved), otherwise=otherwise)


def _equal_on_all_ranks(made: Contributions) -> bool:
    """Whether the gradient inside no_sync, of different samples, is the same on all ranks, as if it were reduced."""
    own = made.own
    return len(own) > 1 and own[0].size > 1 and bool(own.any()) and bool((own == own[0]).all())


def _only_in_no_sync(job: Job) -> tuple[Cause, ...]:
    """Causes of a synchronised backward that differs from the local one before, even with a correct reduction."""
    assert job.model is not None
    terms = " or ".join(terms_of(job.model).values())
    buffers = tuple(tensor.name for tensor in job.model.tensors() if tensor.role == "buffer")
    return (
        *((causes.BUFFERS_APART_IN_NO_SYNC(buffers=buffers),) if buffers else ()),
        *((causes.TERM_LOST_IN_NO_SYNC(terms=terms),) if terms else ()),
    )
