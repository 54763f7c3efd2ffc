"""Moving averages of parameters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpcheck.causes.cause import Given
from ddpcheck.checks import law
from ddpcheck.contract import Capabilities, ReplicaMethod, needs
from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.ordered_hypotheses.replicas import OF_AVERAGES
from ddpcheck.hypotheses.replicas.averages import ObservedAverages
from ddpcheck.job import Backward, Job, Observe, Operation, OptimizerSpec, Resume, Save, SetTrainable, Step, ZeroGrad
from ddpcheck.models.spec import Linear, ModelSpec, Scale, mlp
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from ..drawing import for_each
from ..explicit_examples import fitting
from ..judges import with_causes
from ..strategies import branching, shards, training_job
from .comparison import as_one_process

if TYPE_CHECKING:
    from ddpcheck.session import Session

LOOK = Observe(("parameters", "averaged"))


@law("replica_sync", needs.replica, needs.replica.averaged_weights, needs.replica.optimizers("sgd"))
def check_averaged_weights_match_one_process(session: Session) -> None:
    """The moving average of each parameter equals that of one process, with the same bits on all ranks. This holds from
    construction, after each step, and after save and resume. The average advances by steps, not backwards, and includes
    parameters that are frozen, from the start or later, or had no gradient.
    """
    world, promised = session.world_size, session.capabilities
    specs = [OptimizerSpec(lr=0.05, averaging=averaging) for averaging in (0.5, 0.9)]
    jobs = [averaging_job(world, spec, resumed=resumed) for spec in specs for resumed in (False, True)]
    jobs += [accumulated(world, specs[0], model, promised) for model in _models(promised)]
    if promised.has(ReplicaMethod.UNFREEZING) and "frozen" in promised.replica.model_features:
        jobs.append(frozen_later(world, specs[1], promised))
    allowed = [job for job in jobs if promised.has(ReplicaMethod.CHECKPOINT) or Resume() not in job.operations]
    for_each(session, fitting(session, allowed), with_causes(as_one_process(promised), _explain))


def averaging_job(world_size: int, optimizer: OptimizerSpec, *, resumed: bool) -> Job:
    """Three steps with observations around each, perhaps a save and a resume after the second, and one more step."""
    operations: list[Operation] = [LOOK]
    for number in range(3):
        operations += [Save(), Resume(), LOOK] if resumed and number == 2 else []
        operations += [ZeroGrad(), Backward(shards([2] * world_size, 2 * number * world_size)), Step(), LOOK]
    operations += [Resume(), LOOK] if resumed else []
    return training_job(world_size, mlp((2, 3, 2)), operations, optimizer, exact=False)


def frozen_later(world_size: int, optimizer: OptimizerSpec, promised: Capabilities) -> Job:
    """Five steps; the first layer is frozen after two, and its average continues towards the frozen value."""
    operations: list[Operation] = []
    for number in range(5):
        operations += [ZeroGrad(), *[SetTrainable(("fc1",), trainable=False)] * (number == 2)]
        operations += [Backward(shards([2] * world_size, 2 * number * world_size)), Step(), LOOK]
    model = replace(mlp((2, 3, 2), loss="linear"), dtype=max(promised.replica.replica_dtypes))
    return training_job(world_size, model, operations, optimizer, exact=False)


def accumulated(world_size: int, optimizer: OptimizerSpec, model: ModelSpec, promised: Capabilities) -> Job:
    """Five steps of two micro-batches; every other step, the second uses the model's branches."""
    operations: list[Operation] = []
    for number in range(5):
        first, second = (shards([2] * world_size, (4 * number + half) * world_size) for half in (0, 2))
        taken = (model.branches,) * world_size if number % 2 == 0 else ()
        operations += [
            ZeroGrad(),
            Backward(first, sync=not promised.has(ReplicaMethod.NO_SYNC)),
            Backward(second, branches=taken),
        ]
        operations += [Step(), LOOK]
    return training_job(world_size, model, operations, optimizer, exact=False)


def _models(promised: Capabilities) -> Iterator[ModelSpec]:
    """Models with frozen and one-element layers in the widest dtype, and with a branch."""
    dtype = max(promised.replica.replica_dtypes)
    layers = Linear("fc1", 2, 3, frozen=True), Scale("scalar", 0), Linear("fc2", 3, 2)
    yield ModelSpec(layers, loss="linear", dtype=dtype)
    if promised.replica.unused_parameters == "synchronised" and promised.replica.unused_gradient == "none":
        yield branching(2, "a", loss="linear", dtype=dtype)


def _explain(job: Job, trace: Trace, finding: Finding) -> Given:
    if not trace.completed or finding.diagnosis.subject[0] != "averaged":
        return None
    looks = (ObservedAverages(position, ranks) for position, ranks in trace.all_values("observe"))
    return next(filter(None, (first_cause(OF_AVERAGES, look) for look in looks)), None)
