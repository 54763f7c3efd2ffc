"""Layers that wait, as a host does for its accelerator: what is measured with them holds only if they wait, and do no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpcheck import expect
from ddpcheck.checks import law
from ddpcheck.job import Backward, Job
from ddpcheck.model import Delay, Linear
from ddpcheck.trace import Trace

from .comparison import as_one_process
from .drawing import for_each
from .pitfalls import fitting, one_backward

if TYPE_CHECKING:
    from ddpcheck.session import Session

WAITS = Delay(0.02, 0.03)


@law("gradients", "facet:replica", "feature:delay", "world_size<=2")
def check_layers_that_wait_change_nothing_else(session: Session) -> None:
    """A backward through a Delay takes no less than its seconds, forward and backward, and its gradients are exact."""
    exact = as_one_process(session.capabilities)

    def judge(job: Job, trace: Trace) -> None:
        exact(job, trace)
        _waited(job, trace)

    job = one_backward(session.world_size, Linear("fc1", 2, 3), WAITS, Linear("fc2", 3, 1))
    for_each(session, fitting(session, [job]), judge)


def _waited(job: Job, trace: Trace) -> None:
    place = next(at for at, operation in enumerate(job.operations) if isinstance(operation, Backward))
    for rank in trace.ranks:
        record = rank.records[place]
        assert record.left is not None
        took, least = record.left - record.entered, WAITS.forward + WAITS.backward
        expect.that(
            took >= least,
            f"backward through a layer that waits (rank {rank.rank}): took {took:.3f} s, but should take {least:g} s or more",
            "the layer does not wait, or not both forward and backward",
        )
