"""Checkpoints of replicas: a new replica that loads a saved state continues as if training had not been interrupted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from ddpcheck.checks import law
from ddpcheck.contract import Capabilities, ReplicaMethod, needs
from ddpcheck.job import CloseWindow, Job, Observe, OpenWindow, Operation, OptimizerSpec, Resume, Save, Step
from ddpcheck.models.spec import Activation, BatchNorm, Linear, ModelSpec, Scale, mlp

from .. import explicit_examples
from ..drawing import all_or_every_second, for_all, for_each
from ..explicit_examples import fitting
from ..strategies import ADAM, MOMENTUM, choice, models, optimizers, sgd, training_jobs
from .comparison import as_one_process
from .replica_sync import LOOK
from .shown_values import by_shown_values

if TYPE_CHECKING:
    from ddpcheck.session import Session


@law("replica_sync", needs.replica, needs.replica.checkpoint, needs.replica.optimizers("sgd"))
def check_resumed_training_matches_one_process(session: Session) -> None:
    """Training that is saved, rebuilt on every rank and resumed ends where uninterrupted training of one process ends."""
    world, promised = session.world_size, session.capabilities
    jobs = [interrupt(explicit_examples.steps(world, spec), 1) for spec in (MOMENTUM, ADAM)]
    jobs += [_resumed_twice(explicit_examples.steps(world, spec)) for spec in (MOMENTUM, ADAM)]
    jobs.append(replace(jobs[0], model=ModelSpec((Linear("fc1", 2, 3, frozen=True), *mlp((3, 3, 2)).layers[1:]))))
    # wrappers add a common prefix to every name
    named = ModelSpec((Linear("module", 2, 3), Activation("tanh"), Linear("submodule", 3, 2)))
    jobs.append(replace(jobs[0], model=named))
    held = Scale("scalar", 0, buffer=True), Scale("vector", 3, buffer=True)
    jobs.append(replace(jobs[0], model=ModelSpec((Linear("fc1", 2, 3), *held, Linear("fc2", 3, 2)))))
    jobs += [
        _saved_again(explicit_examples.steps(world, spec), windows=promised.has(ReplicaMethod.NO_SYNC))
        for spec in (MOMENTUM, ADAM)
    ]
    jobs.append(_resumed_often(explicit_examples.steps(world, MOMENTUM, count=11)))
    # a mistake in Adam hides no mistake in checkpoints
    examples = sorted(
        all_or_every_second(session, fitting(session, jobs)), key=lambda job: job.optimizer.name == ADAM.name
    )
    further = by_shown_values(session)
    for_all(session, interrupted(world, promised), as_one_process(promised), examples=examples, further=further)


@law("replica_sync", needs.replica, needs.replica.checkpoint, needs.replica.model_features("batch_norm"))
def check_checkpoint_restores_running_statistics(session: Session) -> None:
    """A new replica that loads a saved state has its running statistics and batch counter, bit for bit, and rank 0's
    continue from there. The state may be saved before or after any training.
    """
    layers = Linear("fc1", 3, 4), BatchNorm("norm", 4), Linear("fc2", 4, 2)
    job = explicit_examples.construction(session.world_size, *layers)
    trained = explicit_examples.statistics(session.world_size)
    *begin, end = (position + 1 for position, each in enumerate(trained.operations) if isinstance(each, Observe))
    resumed = (*trained.operations[: begin[0]], Save(), *trained.operations[begin[0] : begin[1]], Resume(), LOOK)
    jobs = [replace(job, operations=(Save(), Resume(), LOOK))]
    jobs.append(replace(trained, operations=(*resumed, *trained.operations[begin[1] : end])))
    for_each(session, fitting(session, jobs), as_one_process(session.capabilities), further=by_shown_values(session))


@law("replica_sync", needs.replica, needs.replica.checkpoint, needs.replica.optimizers("sgd"))
def check_resumed_training_is_exact(session: Session) -> None:
    """Where sums are exact, saving and resuming changes nothing: every rank ends with the bits of uninterrupted training."""
    world, promised = session.world_size, session.capabilities
    model = models(promised, depths=(1, 2), losses=("linear",))
    steps = training_jobs(world, promised, model=model, rounds=(2,), optimizer=sgd(exact=True), observe=())
    example = interrupt(explicit_examples.steps(world, OptimizerSpec(lr=1.0, momentum=1.0), count=2, exact=True), 1)
    drawn = steps.map(lambda job: interrupt(job, 1))
    for_all(session, drawn, as_one_process(promised), examples=fitting(session, [example]), share=0.5)


@st.composite
def interrupted(draw: DrawFn, world_size: int, capabilities: Capabilities) -> Job:
    """Training with a save and a resume after one of its steps."""
    model = models(capabilities, exact=False, depths=(1, 2))
    optimizer = optimizers(capabilities)
    job = draw(training_jobs(world_size, capabilities, model=model, exact=False, rounds=(2, 3), optimizer=optimizer))
    return interrupt(job, draw(choice((1, 2))))


def interrupt(job: Job, after: int) -> Job:
    """The Job with a save and a resume after so many steps."""
    operations: list[Operation] = []
    steps = 0
    for operation in job.operations:
        operations.append(operation)
        if isinstance(operation, Step):
            steps += 1
            operations += [Save(), Resume(), LOOK] if steps == after else []
    return replace(job, operations=tuple(operations))


def _saved_again(job: Job, *, windows: bool) -> Job:
    """Saved at the start and again at the end, in an open window: the resumed state is that of the end."""
    opened: tuple[list[Operation], list[Operation]] = ([OpenWindow()], [CloseWindow()]) if windows else ([], [])
    again = (*opened[0], Save(), *opened[1], Resume(), LOOK)
    return replace(job, operations=(Save(), *job.operations, *again))


def _resumed_often(job: Job) -> Job:
    """Saved and resumed after one step, two more, three, and four: an error in the state at any of these counts shows
    in the next step.
    """
    for after in (1, 3, 6, 10):
        job = interrupt(job, after)
    return job


def _resumed_twice(job: Job) -> Job:
    """Saved after one step, resumed at the end, trained on, and resumed from the same state again."""
    first, *rest = (position + 1 for position, operation in enumerate(job.operations) if isinstance(operation, Step))
    again = (Resume(), LOOK, *job.operations[first : rest[0]], LOOK)
    operations = (*job.operations[:first], Save(), *job.operations[first:], *again, *again)
    return replace(job, operations=operations)
