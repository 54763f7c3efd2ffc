"""Waiting: delay layers, which stand for a host that waits for its accelerator, and ranks that wait for a late rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpcheck import assertions
from ddpcheck.causes import replicas as causes
from ddpcheck.check_levels import Level
from ddpcheck.checks import law
from ddpcheck.contract import needs
from ddpcheck.job import Backward, Job, Operation, Sleep, ZeroGrad
from ddpcheck.models.spec import Delay, Linear, mlp
from ddpcheck.trace import Trace

from ..collectives.transfers import STRAGGLES, straggling
from ..drawing import for_each, has_time_for_long_jobs
from ..explicit_examples import fitting, one_backward
from ..judges import because
from ..strategies import GRADIENTS, shards, training_job
from .comparison import as_one_process

if TYPE_CHECKING:
    from ddpcheck.session import Session

WAITS = Delay(0.02, 0.03)
LATE = 0.1
"""Seconds by which a rank comes late to a backward."""


@law("gradients", needs.replica, needs.replica.model_features("delay"), needs.ranks(most=2))
def check_delay_layers_wait_and_keep_gradients_exact(session: Session) -> None:
    """A backward through a Delay layer takes at least the layer's seconds, forward and backward, and its gradients are
    exact. Measurements with these layers rely on this.
    """
    exact = as_one_process(session.capabilities)

    def judge(job: Job, trace: Trace) -> None:
        exact(job, trace)
        _waited(job, trace)

    job = one_backward(session.world_size, Linear("fc1", 2, 3), WAITS, Linear("fc2", 3, 1))
    for_each(session, fitting(session, [job]), judge)


@law("gradients", needs.replica, needs.ranks(2, most=2), level=Level.BASIC)
def check_backward_waits_for_late_ranks(session: Session) -> None:
    """When a rank enters a backward late, gradients are still the mean over all ranks, in this backward and the next.

    In long profiles, the rank is 12 seconds late.
    """
    world = session.world_size
    model = mlp((2, 3, 2))
    operations: list[Operation] = [ZeroGrad()]  # otherwise the first backward would be late because of construction
    for number in range(world + 1):
        late = [Sleep(number, LATE)] if number < world else []
        operations += [*late, ZeroGrad(), Backward(shards([1] * world, number * world)), *GRADIENTS]
    cause = causes.LATE_RANK_NOT_AWAITED(seconds=LATE)
    jobs = fitting(session, [training_job(world, model, operations)])
    for_each(session, jobs, because(as_one_process(session.capabilities), cause))
    if has_time_for_long_jobs(session):
        for seconds in STRAGGLES:
            cause = causes.LATE_RANK_NOT_AWAITED(seconds=seconds)
            jobs = fitting(session, [_straggling(world, seconds)])
            for_each(session, jobs, because(as_one_process(session.capabilities), cause))


def _straggling(world_size: int, seconds: float) -> Job:
    """Three backwards; the last rank is late for the second."""
    operations: list[Operation] = []
    for number in range(3):
        operations += straggling(world_size - 1, seconds) if number == 1 else []
        operations += [ZeroGrad(), Backward(shards([1] * world_size, number * world_size)), *GRADIENTS]
    return training_job(world_size, mlp((2, 3, 2)), operations, exact=False)  # integers may be equal on two ranks


def _waited(job: Job, trace: Trace) -> None:
    place = next(at for at, operation in enumerate(job.operations) if isinstance(operation, Backward))
    for rank in trace.ranks:
        record = rank.records[place]
        assert record.left is not None
        took, least = record.left - record.entered, WAITS.forward + WAITS.backward
        assertions.that(
            took >= least,
            f"backward through a layer that waits (rank {rank.rank}): took {took:.3f} s, but should take {least:g} s or more",
            causes.LAYER_DOES_NOT_WAIT(),
        )
