"""Engines whose step() also clears gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddpcheck import assertions
from ddpcheck.causes import replicas as causes
from ddpcheck.checks import law
from ddpcheck.contract import needs
from ddpcheck.job import Backward, OptimizerSpec, Step, ZeroGrad
from ddpcheck.models.spec import Activation, Linear, ModelSpec
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from ..strategies import GRADIENTS, shards, training_job

if TYPE_CHECKING:
    from ddpcheck.session import Session


@law("trajectories", needs.replica, needs.replica.step_zeroes_gradients, needs.ranks(most=2))
def check_step_leaves_no_gradients_where_promised(session: Session) -> None:
    """After a step, every gradient is None or zero without a zero_grad(), if `step_zeroes_gradients` is promised."""
    world, promised = session.world_size, session.capabilities.replica
    model = ModelSpec(
        (Linear("fc1", 2, 3), Activation("tanh"), Linear("fc2", 3, 2)), dtype=max(promised.replica_dtypes)
    )
    optimizer = OptimizerSpec(max(promised.optimizers, default="sgd"), lr=0.01)  # type: ignore[arg-type]  # a set of names
    operations = (ZeroGrad(), Backward(shards([2] * world)), Step(), *GRADIENTS)
    job = training_job(world, model, operations, optimizer, exact=False)
    try:
        _nothing_left(session.run(job))  # for_each would insert a zero_grad() after each step
    except Finding as finding:
        finding.job = job
        raise


def _nothing_left(trace: Trace) -> None:
    assertions.completed(trace)
    for _, ranks in trace.all_values("observe"):
        for rank, seen in enumerate(ranks):
            for name, gradient in seen["gradients"].items():
                assertions.that(
                    gradient is None or not np.any(gradient),
                    f"gradient of {name} after a step on rank {rank}: got numbers, but should be none, or zero",
                    causes.STEP_LEAVES_GRADIENTS(),
                )
