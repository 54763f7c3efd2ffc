"""A note on a gradient that was not reduced: how many bytes the ranks sent in its backward."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpcheck.causes import traffic, values
from ddpcheck.job import Backward, Job, Step
from ddpcheck.operations.probes import Sent
from ddpcheck.verdict import Finding

from .counts import by_kernel

if TYPE_CHECKING:
    from ddpcheck.session import Session


def with_bytes_sent(session: Session, finding: Finding) -> Finding:
    """The finding. If a gradient was not reduced, the Job runs again up to its backward, and the bytes sent in it are noted:
    a collective that is called on other memory sends as many bytes as a right one. If none are sent, the Job runs once more
    with a step, which may send them.
    """
    job = finding.job
    if (
        job is None
        or finding.diagnosis.subject[0] != "gradients"
        or not values.NOT_REDUCED.explains(finding.diagnosis.causes)
    ):
        return finding
    counting = _up_to_backward(job, finding.diagnosis.operation)
    if counting is None:
        return finding
    trace = session.run(counting)
    if not trace.completed:
        return finding
    sent = sum(map(sum, by_kernel(trace).bytes))
    if not sent and session.capabilities.replica.optimizers and _sends_in_step(session, counting):
        finding = finding.blaming(traffic.REDUCED_IN_STEP(), *finding.diagnosis.causes)
    return finding.noting(_note(job, sent))


def _sends_in_step(session: Session, counting: Job) -> bool:
    """Whether all ranks send bytes in a step after the backward. counting: a Job that ends with a count of bytes."""
    trace = session.run(replace(counting, operations=(*counting.operations, Step(), Sent())))
    return trace.completed and all(sent[-1] > 0 for sent in by_kernel(trace).bytes)


def _up_to_backward(job: Job, position: int) -> Job | None:
    """The Job up to the last backward before this position, with a count of bytes before and after it; None without one."""
    last = next((at for at in reversed(range(position)) if isinstance(job.operations[at], Backward)), None)
    if last is None:
        return None
    with suppress(ValueError):  # a Job that cannot end there
        return replace(job, operations=(*job.operations[:last], Sent(), job.operations[last], Sent()))
    return None


def _note(job: Job, sent: int) -> str:
    """sent: over TCP, by all ranks."""
    learned = (
        {tensor.name for tensor in job.model.tensors() if tensor.role == "learned"} if job.model is not None else set()
    )
    size = sum(array.nbytes for name, array in job.initial(0).items() if name in learned)
    least = 2 * (job.world_size - 1) * size
    if not sent:
        return "no rank sent a byte over TCP in this backward: no collective is called, or its data go another way"
    seen = (
        f"all ranks sent {sent:,} bytes over TCP in this backward, and an all-reduce of all gradients sends {least:,}"
    )
    if sent < least:
        return f"{seen}, so some gradients may not be sent"
    return f"{seen}, so the all-reduce may be called on other memory than the gradients"
