"""Jobs with which the harness's own speed is measured."""

from __future__ import annotations

from ddpcheck.job import Backward, DataSpec, Job, Observe, OptimizerSpec, Step, ZeroGrad
from ddpcheck.models.spec import mlp


def three_steps(world_size: int, seed: int = 0) -> Job:
    """A small training Job: an MLP 3-4-2, two samples per rank, three steps of SGD with momentum, and all state
    observed at the end.
    """
    shards = tuple((2 * rank, 2 * rank + 1) for rank in range(world_size))
    return Job(
        world_size,
        (*(Backward(shards), Step(), ZeroGrad()) * 3, Observe(("parameters",))),
        mlp((3, 4, 2)),
        OptimizerSpec("sgd", 0.125, 0.5),
        DataSpec(2 * world_size, "real", seed),
        seed,
    )
