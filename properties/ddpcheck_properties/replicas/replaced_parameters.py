"""Parameters whose memory the model replaces during training: whether the implementation trains the present ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpcheck.causes import updates as causes
from ddpcheck.causes.cause import Given
from ddpcheck.checks import law
from ddpcheck.contract import ReplicaMethod, needs
from ddpcheck.job import Backward, Job, Operation, OptimizerSpec, Resume, Save, Step, ZeroGrad
from ddpcheck.models.spec import Activation, Linear, ModelSpec
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from ..drawing import for_each
from ..explicit_examples import fitting
from ..judges import with_causes
from ..strategies import PARAMETERS, shards, training_job
from .comparison import as_one_process

if TYPE_CHECKING:
    from ddpcheck.session import Session

STEPS = 4
OPTIMIZERS = OptimizerSpec(lr=0.05), OptimizerSpec(lr=0.05, momentum=0.9)


@law(
    "trajectories",
    needs.replica,
    needs.replica.model_features("replaced_parameters"),
    needs.replica.optimizers("sgd"),
)
def check_parameters_with_replaced_memory_are_trained(session: Session) -> None:
    """A weight that the model moves to new memory in each training forward is trained as on one process, on every rank and
    after a resume. torch models do so by assigning `weight.data`.
    """
    promised, world = session.capabilities, session.world_size
    # the Jobs without replacement come first: their failures have other causes
    jobs = [
        _trained(world, each, promised.has(ReplicaMethod.CHECKPOINT), replaced)
        for replaced in (False, True)
        for each in OPTIMIZERS
    ]
    for_each(session, fitting(session, jobs), with_causes(as_one_process(promised), _explain))


def _explain(job: Job, trace: Trace, finding: Finding) -> Given:
    assert job.model is not None
    if not trace.completed or "replaced_parameters" not in job.model.features():
        return None
    return causes.REPLACED_PARAMETERS_HELD(), finding.diagnosis.causes


def _trained(world: int, optimizer: OptimizerSpec, resumes: bool, replaced: bool) -> Job:
    layers = Linear("fc1", 3, 4, replaced=replaced), Activation("relu"), Linear("fc2", 4, 2)
    operations: list[Operation] = []
    for number in range(STEPS):
        backward = Backward(shards([2] * world, 2 * number * world))
        operations += [ZeroGrad(), backward, Step(), *PARAMETERS]
        operations += [Save(), Resume(), *PARAMETERS] if resumes and number == 1 else []
    return training_job(world, ModelSpec(layers), operations, optimizer, exact=False, seed=7)
