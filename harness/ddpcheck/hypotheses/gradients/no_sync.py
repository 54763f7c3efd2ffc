"""Causes of a backward with different gradients inside and outside no_sync."""

from __future__ import annotations

from ...causes import Cause
from ...causes import replicas as causes
from ...job import Job
from ...oracle.auxiliary_terms import terms_of


def only_in_no_sync(job: Job) -> tuple[Cause, ...]:
    """Causes of a synchronised backward that differs from the local one before, even with a correct reduction."""
    assert job.model is not None
    terms = " or ".join(terms_of(job.model).values())
    buffers = tuple(tensor.name for tensor in job.model.tensors() if tensor.role == "buffer")
    return (
        *((causes.BUFFERS_APART_IN_NO_SYNC(buffers=buffers),) if buffers else ()),
        *((causes.TERM_LOST_IN_NO_SYNC(terms=terms),) if terms else ()),
    )
