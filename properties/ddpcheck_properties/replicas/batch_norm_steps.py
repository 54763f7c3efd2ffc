"""Steps of models with batch norm follow from the gradients that the replica shows.

So no oracle of batch norm is needed, and the bounds are those of the optimizer alone (ddpcheck.oracle.optimizer).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ddpcheck import assertions
from ddpcheck.checks import law
from ddpcheck.contract import needs
from ddpcheck.hypotheses.evidence import of_origin
from ddpcheck.hypotheses.updates.other_optimizers import by_other_optimizers
from ddpcheck.job import Backward, Job, Observe, Operation, Step, ZeroGrad
from ddpcheck.models.spec import Activation, BatchNorm, Linear, ModelSpec
from ddpcheck.oracle.bounded_values import Value
from ddpcheck.oracle.history import History
from ddpcheck.oracle.optimizer import Optimizer
from ddpcheck.oracle.origins import Update
from ddpcheck.seeded_values import Array
from ddpcheck.trace import Trace

from ..drawing import for_each
from ..explicit_examples import fitting
from ..strategies import ADAM, MOMENTUM, shards, training_job
from .comparison import when

if TYPE_CHECKING:
    from ddpcheck.session import Session

SPECS = MOMENTUM, replace(ADAM, weight_decay=0.25)
_ROUNDS = 3


@law("trajectories", needs.replica, needs.replica.model_features("batch_norm"))
def check_steps_with_batch_norm_follow_the_optimizer(session: Session) -> None:
    """In a model with batch norm, a step moves every parameter, scale and shift included, as the optimizer does with the
    gradient that the replica shows. Momentum and weight decay apply as to all other parameters.
    """
    layers = Linear("fc1", 3, 4), BatchNorm("norm", 4), Activation("tanh"), Linear("fc2", 4, 2)
    look = Observe(("gradients", "parameters"))
    operations: list[Operation] = []
    for number in range(_ROUNDS):
        samples = shards([3] * session.world_size, 3 * number * session.world_size)
        operations += [ZeroGrad(), Backward(samples), look, Step(), Observe(("parameters",))]
    model = ModelSpec(layers, dtype="float64")
    jobs = [training_job(session.world_size, model, operations, spec, exact=False, seed=3) for spec in SPECS]
    for_each(session, fitting(session, jobs), _goes_by_its_gradients)


def _goes_by_its_gradients(job: Job, trace: Trace) -> None:
    assertions.completed(trace)
    assert job.model is not None
    for rank in range(job.world_size):
        optimizer, earlier = Optimizer(job.optimizer, job.model.dtype), dict[str, Array]()
        for position, operation in enumerate(job.operations):
            if isinstance(operation, Step):
                earlier = _one_step(job, trace, rank, position, optimizer, earlier)


def _one_step(
    job: Job, trace: Trace, rank: int, position: int, optimizer: Optimizer, earlier: Mapping[str, Array]
) -> dict[str, Array]:
    """The step at `position`, between two observations. earlier: the parameters before the previous step. Returns those
    before this step.
    """
    gradients = trace.values(position - 1, "gradients")[rank]
    before, after = (trace.values(position + side, "parameters")[rank] for side in (-1, 1))
    time = when(job, position + 1)
    for name, gradient in gradients.items():
        assertions.that(
            gradient is not None, f"gradient of {name} ({time}) on rank {rank}: got none, but should be an array"
        )
        taken, parameter = _known(gradient), _known(before[name])
        begun = optimizer.copy()
        due = optimizer.step(name, parameter, taken)
        assert due.error is not None
        update = Update(name, parameter.exact, taken.exact, begun, History(), earlier=earlier.get(name))
        found = of_origin(update, due.exact[0], 0)
        other = tuple((cause, array[0]) for cause, array in by_other_optimizers(name, taken, parameter, begun))
        what = f"parameter {name} ({time}), by the gradient that was there,"
        evidence = replace(found, alternatives=(*other, *found.alternatives))
        assertions.within(after[name], due.exact[0], due.error[0], what, rank, evidence)
    return {name: _known(array).exact for name, array in before.items()}


def _known(array: Array) -> Value:
    """The only rank's, as origins of values have the ranks as first axis."""
    wide = np.asarray(array, np.float64)[np.newaxis]
    return Value(wide, np.zeros_like(wide))
