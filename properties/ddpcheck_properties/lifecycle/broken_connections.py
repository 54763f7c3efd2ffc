"""A connection breaks in the middle of training while all ranks live: the result is right, or an error is raised."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddpcheck.causes import lifecycle as causes
from ddpcheck.checks import law
from ddpcheck.contract import needs
from ddpcheck.job import Attempt, Backward, BreakConnections, Job, Operation, ZeroGrad
from ddpcheck.models.spec import mlp
from ddpcheck.numerics import same_bits
from ddpcheck.trace import Trace
from ddpcheck.verdict import Diagnosis, Finding

from ..drawing import for_each
from ..explicit_examples import fitting
from ..replicas.large_models import several_buckets
from ..strategies import GRADIENTS, shards, training_job

if TYPE_CHECKING:
    from ddpcheck.session import Session


@law("failures", needs.replica, needs.ranks(2, most=2))
def check_backward_raises_if_connections_break(session: Session) -> None:
    """When one rank's connections break between two backwards, backward gives the same gradients as before, raises an error,
    or still waits. No rank gets other gradients.
    """
    world = session.world_size
    samples = shards([2] * world)
    again: list[Operation] = [ZeroGrad(), Backward(samples), *GRADIENTS]
    broken: list[Operation] = [ZeroGrad(), BreakConnections(world - 1), Attempt(Backward(samples)), *GRADIENTS]
    jobs = [training_job(world, model, [*again, *broken]) for model in (several_buckets(), mlp((2, 3, 2)))]
    try:
        for_each(session, fitting(session, jobs)[:1], _no_other_gradients)
    finally:
        session.close(orderly=False)  # the ranks have lost each other


def _no_other_gradients(job: Job, trace: Trace) -> None:
    at = next(position for position, each in enumerate(job.operations) if isinstance(each, Attempt))
    for rank in trace.ranks:
        records = {record.operation: record for record in rank.records}
        after = records.get(at + 1)
        if after is None or after.left is None or records[at].values["error"]:
            continue
        right = records[2].values["gradients"]
        for name, gradient in after.values["gradients"].items():
            if gradient is None or not same_bits(np.asarray(gradient), np.asarray(right[name])):
                raise Finding(
                    Diagnosis(
                        f"rank {rank.rank} completed backward (operation {at}) with another gradient of {name} than before the "
                        f"connections of rank {job.world_size - 1} broke; it should have raised an error",
                        (causes.ERROR_SWALLOWED(operation="backward"),),
                    )
                )
