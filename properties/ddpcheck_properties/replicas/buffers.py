"""Buffers during training: whether ranks continue from rank 0's present buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpcheck import assertions
from ddpcheck.checks import Observation, law
from ddpcheck.contract import ReplicaSync, needs
from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.ordered_hypotheses.replicas import OF_BUFFERS_APART
from ddpcheck.job import Backward, Job, Observe, Operation, ZeroGrad
from ddpcheck.models.spec import BatchNorm, Linear, ModelSpec
from ddpcheck.numerics import same_bits
from ddpcheck.trace import Trace

from ..drawing import for_each
from ..explicit_examples import fitting
from ..strategies import shards, training_job

if TYPE_CHECKING:
    from ddpcheck.session import Session

APART = 3
"""The number of backwards with different samples on each rank."""
_EQUAL = tuple(range(3))
"""The samples that all ranks have in the last backward."""


@law("replica_sync", needs.replica, needs.replica.model_features("batch_norm"), needs.ranks(2, most=3))
def check_training_forward_begins_with_rank_0s_buffers(session: Session) -> Observation | None:
    """Every synchronised training forward begins with rank 0's buffers, including replaced ones, where
    `replica_sync=EACH_FORWARD` is promised.

    After a backward on equal samples the ranks' running statistics are then equal. Without the promise, a difference is an
    observation.
    """
    promised = session.capabilities.replica
    seen: list[str] = []

    def judge(job: Job, trace: Trace) -> None:
        assertions.completed(trace)
        different = _different(job, trace)
        if different and promised.replica_sync < ReplicaSync.EACH_FORWARD:
            seen.append(different[0])
            return
        assert job.model is not None
        assertions.that(
            not different,
            f"buffer {', '.join(different[:1])} after a backward on equal samples differs between ranks, but the forward should "
            "have begun with rank 0's",
            first_cause(OF_BUFFERS_APART, job.model),
        )

    for_each(
        session,
        fitting(session, [_apart_then_equal(session.world_size, replaced) for replaced in (False, True)]),
        judge,
    )
    if not seen:
        return None
    return Observation(
        f"each rank keeps running statistics of its own ({seen[0]}): evaluation differs by rank, and a checkpoint holds those of "
        "one rank; this fails where replica_sync=EACH_FORWARD is promised"
    )


def _apart_then_equal(world: int, replaced: bool) -> Job:
    layers = BatchNorm("norm", 3, replaced), Linear("fc1", 3, 2)
    operations: list[Operation] = []
    for number in range(APART):
        operations += [ZeroGrad(), Backward(shards([2] * world, 3 + 2 * number * world))]
    operations += [ZeroGrad(), Backward((_EQUAL,) * world), Observe(("buffers",))]
    return training_job(world, ModelSpec(layers), operations, exact=False, seed=5)


def _different(job: Job, trace: Trace) -> list[str]:
    """Names of the buffers that differ between ranks at the end."""
    first, *others = trace.values(len(job.operations) - 1, "buffers")
    return [name for name in first if any(not same_bits(other[name], first[name]) for other in others)]
