"""State that replicas share beside gradients: parameters, frozen ones and buffers from construction on, predictions,
and checkpoints.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from ddpcheck import assertions
from ddpcheck.check_levels import Level
from ddpcheck.checks import law
from ddpcheck.contract import Capabilities, Determinism, ReplicaMethod, ReplicaSync, needs
from ddpcheck.hypotheses.arrays import Evidence
from ddpcheck.hypotheses.replicas.special_runs import other_initial_values
from ddpcheck.job import (
    CloseWindow,
    Job,
    Observe,
    OpenWindow,
    Operation,
    OptimizerSpec,
    Predict,
    Resume,
    Save,
    Step,
)
from ddpcheck.models.spec import Activation, BatchNorm, Embedding, Linear, ModelSpec, Scale, mlp
from ddpcheck.trace import Trace

from .. import explicit_examples
from ..drawing import Judge, all_or_every_second, for_all, for_each
from ..explicit_examples import fitting
from ..strategies import ADAM, MOMENTUM, SEEDS, choice, models, optimizers, sgd, training_job, training_jobs
from .comparison import as_one_process
from .shown_values import by_shown_values

if TYPE_CHECKING:
    from ddpcheck.session import Session

LOOK = Observe(("parameters", "buffers"))


@law(
    "replica_sync", needs.replica, needs.ranks(2), needs.replica.replica_sync(ReplicaSync.PARAMETERS), level=Level.BASIC
)
def check_construction_broadcasts_parameters_from_rank_0(session: Session) -> None:
    """A new replica holds rank 0's initial parameters, bit for bit, on every rank, although each rank was given different
    ones.
    """
    world, promised = session.world_size, session.capabilities
    layers = Linear("fc1", 3, 4), Scale("scale", 0), Linear("fc2", 4, 2)
    examples = [
        explicit_examples.construction(world, *layers),
        explicit_examples.construction(world, Embedding("embedding", 5, 3), *layers, exact=False),
        explicit_examples.construction(world, Linear("fc1", 520, 520)),
    ]
    for_all(session, new_replicas(world, promised), _from_rank_0("parameters"), examples=fitting(session, examples))


@law(
    "replica_sync",
    needs.replica,
    needs.replica.model_features("frozen"),
    needs.ranks(2),
    needs.replica.replica_sync(ReplicaSync.PARAMETERS),
)
def check_construction_broadcasts_frozen_parameters(session: Session) -> None:
    """A new replica holds rank 0's frozen parameters on every rank."""
    layers = Linear("fc1", 3, 4, frozen=True), Linear("fc2", 4, 2)
    jobs = [explicit_examples.construction(session.world_size, *layers, exact=exact) for exact in (True, False)]
    for_each(session, fitting(session, jobs), _from_rank_0("parameters"))


@law(
    "replica_sync",
    needs.replica,
    needs.replica.model_features("buffer"),
    needs.ranks(2),
    needs.replica.replica_sync(ReplicaSync.BUFFERS),
    level=Level.BASIC,
)
def check_construction_broadcasts_buffers(session: Session) -> None:
    """A new replica holds rank 0's buffers, bit for bit, on every rank."""
    layers = Linear("fc1", 3, 4), Scale("buffer", 4, buffer=True), Linear("fc2", 4, 2), Scale("scalar", 0, buffer=True)
    jobs = [explicit_examples.construction(session.world_size, *layers, exact=exact) for exact in (True, False)]
    for_each(session, fitting(session, jobs), _from_rank_0("buffers"))


@law(
    "replica_sync",
    needs.replica,
    needs.replica.model_features("batch_norm"),
    needs.ranks(2),
    needs.replica.replica_sync(ReplicaSync.BUFFERS),
    level=Level.BASIC,
)
def check_construction_broadcasts_running_statistics(session: Session) -> None:
    """A new replica holds rank 0's running statistics and its integer batch counter, bit for bit, on every rank."""
    layers = Linear("fc1", 3, 4), BatchNorm("norm", 4), Linear("fc2", 4, 2)
    jobs = [explicit_examples.construction(session.world_size, *layers, exact=exact) for exact in (True, False)]
    for_each(session, fitting(session, jobs), _from_rank_0("buffers"))


@law("replica_sync", needs.replica, needs.replica.model_features("batch_norm"), needs.replica.batch_norm("local"))
def check_rank_0_running_statistics_follow_its_own_batches(session: Session) -> None:
    """After forward passes in training mode, also inside no_sync, rank 0's running statistics are those of its own batches,
    whatever the others' sizes.

    The other ranks' statistics are not judged: they may take over rank 0's before each forward.
    """
    promised = session.capabilities
    sizes = (False, True) if promised.replica.uneven_batches == "equal_weight" else (False,)
    local = promised.has(ReplicaMethod.NO_SYNC)
    jobs = [
        explicit_examples.statistics(session.world_size, uneven=uneven, local=local and not uneven) for uneven in sizes
    ]
    for_each(session, fitting(session, jobs), as_one_process(promised), further=by_shown_values(session))


@law(
    "replica_sync",
    needs.replica,
    needs.ranks(2),
    needs.replica.replica_sync(ReplicaSync.PARAMETERS),
    needs.world.determinism(Determinism.BETWEEN_RANKS),
    needs.replica.optimizers("sgd"),
    level=Level.BASIC,
)
def check_predictions_are_equal_on_all_ranks(session: Session) -> None:
    """After training, every rank predicts the same outputs for the same samples. They equal the outputs of one process within
    rounding.
    """
    world, promised = session.world_size, session.capabilities

    def judge(job: Job, trace: Trace) -> None:
        as_one_process(promised)(job, trace)
        assertions.same_on_all_ranks(
            trace.values(len(job.operations) - 1, "outputs"), "prediction for the same samples"
        )

    apart = {"buffer"} if promised.replica.replica_sync < ReplicaSync.BUFFERS else set()
    alike = promised.replica.model_features - apart
    model = models(promised.but(model_features=alike), exact=False, depths=(1, 2))
    trained = training_jobs(world, promised, model=model, exact=False, rounds=(1, 2), optimizer=sgd(), observe=())
    predict = Predict(((0, 1),) * world)
    drawn = trained.map(lambda job: replace(job, operations=(*job.operations, predict)))
    for_all(session, drawn, judge, share=0.5)


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
def new_replicas(draw: DrawFn, world_size: int, capabilities: Capabilities) -> Job:
    """A Job that only observes a new replica."""
    exact = draw(choice((True, False)))
    model = draw(models(capabilities, exact=exact, batch_norm=True))
    return training_job(world_size, model, [LOOK], exact=exact, seed=draw(SEEDS))


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


def _from_rank_0(what: Literal["parameters", "buffers"]) -> Judge:
    def judge(job: Job, trace: Trace) -> None:
        assertions.completed(trace)
        assert job.model is not None
        initial = [job.initial(rank) for rank in range(job.world_size)]
        for name in (tensor.name for tensor in job.model.tensors() if (tensor.role == "buffer") == (what == "buffers")):
            of_ranks = [values[name] for values in initial]
            for rank, seen in enumerate(trace.values(0, what)):
                known = tuple(other_initial_values(of_ranks, rank))
                text = f"{what.removesuffix('s')} {name} of a new replica"
                assertions.same_array(
                    seen[name], initial[0][name], text, rank, Evidence(job.world_size, alternatives=known)
                )

    return judge
