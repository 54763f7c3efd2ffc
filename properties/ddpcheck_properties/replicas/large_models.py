"""Large tensors: several buckets of several MiB, and optimizer steps that may be taken piece by piece."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpcheck.checks import law
from ddpcheck.contract import Capabilities, ReplicaMethod, needs
from ddpcheck.job import Backward, Clip, Job, Operation, OptimizerSpec, Resume, Save, Step, ZeroGrad
from ddpcheck.models.spec import Linear, ModelSpec, Scale

from ..drawing import for_each
from ..explicit_examples import fitting
from ..strategies import GRADIENTS, PARAMETERS, shards, training_job
from .comparison import as_one_process
from .shown_values import by_shown_values

if TYPE_CHECKING:
    from ddpcheck.session import Session

STEPPED = (1 << 17) + 5
"""Elements: above half a MiB in float32, and a multiple of no piece size."""
OPTIMIZERS = (
    OptimizerSpec(lr=1.0),
    OptimizerSpec(lr=1.0, momentum=1.0),
    OptimizerSpec("adam", lr=0.02, betas=(0.5, 0.75), eps=0.05, weight_decay=0.25),
)
CLIPPED = 30.0
"""A norm far below that of the gradients."""
BUCKETED = 300_001
"""Elements of each of two tensors: 2.3 MiB in float64."""
BACKWARDS = 9
"""More backwards than an implementation needs to choose an algorithm by measuring."""


@law("trajectories", needs.replica, needs.ranks(most=2))
def check_optimizer_steps_every_element_of_large_tensors(session: Session) -> None:
    """After steps of SGD, with and without momentum, and of Adam, every element of two large tensors and of a scalar matches
    one process. This also holds after accumulation, after clipping, and on a new replica that resumes.
    """
    promised = session.capabilities
    jobs = [_steps(session.world_size, optimizer, promised) for optimizer in OPTIMIZERS]
    for_each(session, fitting(session, jobs), as_one_process(promised), further=by_shown_values(session))


@law(
    "buckets",
    needs.replica,
    needs.replica.model_features("scale"),
    needs.replica.replica_dtypes("float64"),
    needs.ranks(2, most=2),
)
def check_multi_megabyte_gradients_are_exact_in_every_backward(session: Session) -> None:
    """Gradients that fill several buckets of several MiB equal the large batch in every backward. This includes backwards
    whose order or algorithm was chosen by timing earlier ones.
    """
    operations: list[Operation] = []
    for number in range(BACKWARDS):
        operations += [ZeroGrad(), Backward(shards([1] * session.world_size, number * session.world_size))]
        operations += GRADIENTS if number in (0, BACKWARDS - 1) else ()
    job = training_job(session.world_size, several_buckets(), operations)
    for_each(session, fitting(session, [job]), as_one_process(session.capabilities))


def several_buckets() -> ModelSpec:
    """Two tensors of several MiB each."""
    layers = Linear("fc1", 1, BUCKETED, bias=False), Scale("scale", BUCKETED)
    return ModelSpec(layers, loss="linear", dtype="float64")


def _steps(world_size: int, optimizer: OptimizerSpec, promised: Capabilities) -> Job:
    """Two steps, the second on a new replica or without optimizer state; a micro-batch inside no_sync before each; real
    gradients are clipped.
    """
    exact = optimizer.name == "sgd"
    operations: list[Operation] = []
    for number in range(1 if exact and not optimizer.momentum else 2):
        first, second = (shards([1] * world_size, (2 * number + half) * world_size) for half in (0, 1))
        operations += [Save(), Resume()] * (promised.has(ReplicaMethod.CHECKPOINT) and number == 1)
        operations += [
            ZeroGrad(),
            *[Backward(first, sync=False)] * promised.has(ReplicaMethod.NO_SYNC),
            Backward(second),
        ]
        operations += [*[Clip(CLIPPED)] * (promised.has(ReplicaMethod.CLIPPING) and not exact), Step(), *PARAMETERS]
    layers = Linear("large", 1, STEPPED), Scale("scalar", 0)  # weight and bias may be on different ranks
    # in float32 the scalar's gradient, a sum of this many terms, has no useful bound
    model = ModelSpec(layers, loss="linear", dtype="float32" if exact else max(promised.replica.replica_dtypes))
    return training_job(world_size, model, operations, optimizer, exact=exact)
