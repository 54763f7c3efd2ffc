"""State that replicas share beside gradients: parameters, frozen ones and buffers from construction on, and predictions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from ddpcheck import assertions
from ddpcheck.check_levels import Level
from ddpcheck.checks import law
from ddpcheck.contract import Capabilities, Determinism, ReplicaMethod, ReplicaSync, needs
from ddpcheck.job import (
    Job,
    Observe,
    Predict,
)
from ddpcheck.models.spec import BatchNorm, Embedding, Linear, Scale
from ddpcheck.trace import Trace

from .. import explicit_examples
from ..drawing import for_all, for_each
from ..explicit_examples import fitting
from ..strategies import SEEDS, choice, models, sgd, training_job, training_jobs
from .comparison import as_one_process
from .construction import from_rank_0
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
    for_all(session, new_replicas(world, promised), from_rank_0("parameters"), examples=fitting(session, examples))


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
    for_each(session, fitting(session, jobs), from_rank_0("parameters"))


@law(
    "replica_sync",
    needs.replica,
    needs.replica.model_features("buffer"),
    needs.ranks(2),
    needs.replica.replica_sync(ReplicaSync.BUFFERS),
    level=Level.BASIC,
)
def check_construction_broadcasts_buffers(session: Session) -> None:
    """A new replica holds rank 0's buffers, bit for bit, on every rank, including those that the state dict leaves out."""
    layers = Linear("fc1", 3, 4), Scale("buffer", 4, buffer=True), Linear("fc2", 4, 2), Scale("scalar", 0, buffer=True)
    jobs = [explicit_examples.construction(session.world_size, *layers, exact=exact) for exact in (True, False)]
    unsaved = Scale("unsaved", 2, buffer=True, unsaved=True)
    jobs.append(explicit_examples.construction(session.world_size, *layers, unsaved, exact=False))
    for_each(session, fitting(session, jobs), from_rank_0("buffers"))


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
    for_each(session, fitting(session, jobs), from_rank_0("buffers"))


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


@st.composite
def new_replicas(draw: DrawFn, world_size: int, capabilities: Capabilities) -> Job:
    """A Job that only observes a new replica."""
    exact = draw(choice((True, False)))
    model = draw(models(capabilities, exact=exact, batch_norm=True))
    return training_job(world_size, model, [LOOK], exact=exact, seed=draw(SEEDS))
