"""Side effects: evaluating and saving do not change training, and training does not change its arguments."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ddpcheck import assertions
from ddpcheck.causes import programs
from ddpcheck.causes.cause import Given
from ddpcheck.checks import law
from ddpcheck.contract import Capabilities, ReplicaMethod, needs
from ddpcheck.hypotheses.arrays import Evidence
from ddpcheck.hypotheses.replicas.special_runs import evaluation_changes_gradients
from ddpcheck.job import (
    Backward,
    CloseWindow,
    Job,
    Observe,
    OpenWindow,
    Operation,
    OptimizerSpec,
    PerRank,
    Predict,
    Resume,
    Save,
    ZeroGrad,
)
from ddpcheck.models.spec import BATCH_NORM_EPS, BatchNorm, Linear, ModelSpec
from ddpcheck.numerics import gamma
from ddpcheck.seeded_values import Array
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from .. import explicit_examples
from ..drawing import for_all, for_each
from ..explicit_examples import fitting
from ..judges import with_causes
from ..strategies import ADAM, GRADIENTS, MOMENTUM, models, sgd, shards, training_job, training_jobs
from .comparison import as_one_process, when
from .shown_values import by_shown_values
from .unchanged_arrays import arguments_unchanged, states_and_batches_unchanged

if TYPE_CHECKING:
    from ddpcheck.session import Session

ROWS = (2, 0, 1)


@law("replica_sync", needs.replica, needs.replica.optimizers("sgd"))
def check_predict_does_not_change_training(session: Session) -> None:
    """predict() before, between or after training operations does not change training, and one rank may call it alone. A batch
    without samples has no outputs.
    """
    world, promised = session.world_size, session.capabilities
    everyone = ((0,),) * world
    alone = [tuple((0,) if rank == only else () for rank in range(world)) for only in sorted({0, world - 1})]
    steps = explicit_examples.steps(world, MOMENTUM)
    assert steps.model is not None
    # gradients first: otherwise a change by evaluating would show only in the predictions after the step
    examples = [_between(steps, *GRADIENTS, Predict(samples), *GRADIENTS) for samples in (everyone, *alone)]
    idle = tuple((0,) if rank < world - 1 else () for rank in range(world))
    examples.append(_between(steps, *GRADIENTS, Predict(idle, idle=True), *GRADIENTS))
    one_parameter = replace(steps, model=replace(steps.model, layers=(Linear("fc1", 2, 2, bias=False),)))
    examples.append(_between(one_parameter, *GRADIENTS, Predict(everyone), *GRADIENTS))
    drawn = training_jobs(
        world, promised, model=models(promised, exact=False, depths=(1, 2)), exact=False, optimizer=sgd()
    )
    evaluated = drawn.map(lambda job: _between(job, Predict(everyone)))
    judge = with_causes(as_one_process(promised), _causes_of_evaluating)
    try:
        for_all(session, evaluated, judge, examples=fitting(session, examples), share=0.3)
    except Finding as finding:
        _try_unevaluated(session, finding)
        raise


@law("replica_sync", needs.replica, needs.replica.model_features("batch_norm"))
def check_predict_uses_the_running_statistics(session: Session) -> None:
    """predict() normalises by the running statistics, not by its batch's, and does not update them. This also holds inside
    no_sync, and for every batch size.

    For one batch norm and one linear layer, outputs are at most 12 roundings away from the exact ones; the absolute values
    of the terms add up to `size` in _normalised.
    """
    world = session.world_size
    look, evaluate, larger = (
        Observe(("parameters", "buffers")),
        *(Predict((rows,) * world) for rows in (ROWS, 23 * ROWS)),
    )
    operations: list[Operation] = [
        look,
        evaluate,
        look,
        ZeroGrad(),
        Backward(shards([3] * world)),
        look,
        larger,
        look,
        evaluate,  # repeats the outputs of an earlier batch, until the next step
        look,
    ]
    programs = [operations]
    if session.capabilities.has(ReplicaMethod.NO_SYNC):
        programs.append([OpenWindow(), Backward(shards([3] * world)), look, evaluate, look, CloseWindow()])
    layers = BatchNorm("norm", 3), Linear("fc1", 3, 2)
    jobs = [
        training_job(world, ModelSpec(layers, dtype=dtype), program, exact=False)
        for program, dtype in (*((program, "float32") for program in programs), (operations, "float64"))
    ]
    for_each(session, fitting(session, jobs), _normalises)


@law("replica_sync", needs.replica, needs.replica.checkpoint, needs.replica.optimizers("sgd"))
def check_saving_does_not_change_training(session: Session) -> None:
    """state() does not change training. It may be called at any point, also between backward and step."""
    world, promised = session.world_size, session.capabilities
    examples = [
        _between(explicit_examples.steps(world, spec), *GRADIENTS, Save(), *GRADIENTS) for spec in (MOMENTUM, ADAM)
    ]
    for_each(session, fitting(session, examples), as_one_process(promised), further=by_shown_values(session))


@law("replica_sync", needs.replica, needs.replica.checkpoint, needs.replica.optimizers("sgd"))
def check_saved_state_is_a_copy(session: Session) -> None:
    """A saved state is a copy: later training changes nothing in it, including running statistics, moments and averages."""
    world, promised = session.world_size, session.capabilities
    trained = [explicit_examples.steps(world, _averaging(spec, promised)) for spec in (MOMENTUM, ADAM)]
    jobs = [_between(job, Save()) for job in (*trained, explicit_examples.statistics(world, 2))]
    for_each(session, fitting(session, jobs), states_and_batches_unchanged)


@law("replica_sync", needs.replica, needs.replica.optimizers("sgd"))
def check_backward_does_not_change_its_batch(session: Session) -> None:
    """Neither backward nor predict() changes the given inputs and targets, which later epochs use again."""
    jobs = [_between(explicit_examples.steps(session.world_size, MOMENTUM), Predict(((0, 1),) * session.world_size))]
    for_each(session, fitting(session, jobs), states_and_batches_unchanged)


@law("replica_sync", needs.replica, needs.replica.optimizers("sgd"))
def check_replica_does_not_change_given_arrays(session: Session) -> None:
    """The arrays given to load_state() never change, however training continues. Neither do those given to make_replica(),
    if several replicas are promised.
    """
    world, promised = session.world_size, session.capabilities
    trained = [explicit_examples.steps(world, _averaging(spec, promised)) for spec in (MOMENTUM, ADAM)]
    jobs = [trained[0], explicit_examples.statistics(world, 2)]
    if promised.has(ReplicaMethod.CHECKPOINT):
        jobs += [replace(job, operations=(*job.operations, Save(), Resume(), *job.operations)) for job in trained]
    for_each(session, fitting(session, jobs), partial(arguments_unchanged, promised))


def _averaging(spec: OptimizerSpec, promised: Capabilities) -> OptimizerSpec:
    """With a moving average of the parameters, if promised."""
    return replace(spec, averaging=0.5 * promised.has(ReplicaMethod.AVERAGED_WEIGHTS))


def _try_unevaluated(session: Session, finding: Finding) -> None:
    """Raise the failure of the same Job without its evaluations, if it fails as well: evaluations are then not the cause."""
    if finding.job is not None and not finding.hung:
        plain = tuple(operation for operation in finding.job.operations if not isinstance(operation, Predict))
        for_each(session, [replace(finding.job, operations=plain)], as_one_process(session.capabilities))


def _causes_of_evaluating(job: Job, trace: Trace, finding: Finding) -> Given:
    sure, (kind, _) = finding.diagnosis.causes, finding.diagnosis.subject
    return (sure, evaluation_changes_gradients(sure)) if kind == "gradients" else None


def _between(job: Job, *inserted: Operation) -> Job:
    """The Job with these operations before the first of its own, and after each."""
    operations = [*inserted, *(each for operation in job.operations for each in (operation, *inserted))]
    return replace(job, operations=tuple(operations))


def _normalises(job: Job, trace: Trace) -> None:
    assertions.completed(trace)
    assert job.data is not None
    assert job.model is not None
    inputs = job.data.arrays(job.model)[0]
    for position, operation in enumerate(job.operations):
        if not isinstance(operation, Predict):
            continue
        before, after = ([rank.values(place) for rank in trace.ranks] for place in (position - 1, position + 1))
        for rank, outputs in enumerate(trace.values(position, "outputs")):
            for name, buffer in before[rank]["buffers"].items():
                text = f"buffer {name} after an evaluation ({when(job, position)})"
                now = after[rank]["buffers"][name]
                moved = Evidence(alternatives=((programs.EVALUATION_MOVES_STATISTICS(), now),))
                assertions.same_array(now, buffer, text, rank, moved)
            rows = _rows(inputs, operation.samples, rank)
            exact, size = _normalised(rows, before[rank]["parameters"], before[rank]["buffers"])
            what = f"prediction by the running statistics ({when(job, position)})"
            bound = gamma(12, outputs.dtype) * size
            assertions.within(
                outputs, exact, bound, what, rank, Evidence(otherwise=programs.EVALUATION_USES_OTHER_VALUES())
            )


def _rows(inputs: Array, samples: PerRank, rank: int) -> Array:
    chosen: Array = inputs[list(samples[rank])].astype(np.float64)
    return chosen


def _normalised(rows: Array, parameters: Any, buffers: Any) -> tuple[Array, Array]:
    """Outputs of the batch norm and the linear layer in evaluation mode, and the sum of their terms' absolute values."""
    wide = {name: array.astype(np.float64) for name, array in {**parameters, **buffers}.items()}
    scale = wide["norm.weight"] / np.sqrt(wide["norm.running_var"] + BATCH_NORM_EPS)
    weight = wide["fc1.weight"]
    hidden = (rows - wide["norm.running_mean"]) * scale + wide["norm.bias"]
    terms = (abs(rows) + abs(wide["norm.running_mean"])) * abs(scale) + abs(wide["norm.bias"])
    return hidden @ weight.T + wide["fc1.bias"], terms @ abs(weight).T + abs(wide["fc1.bias"])
