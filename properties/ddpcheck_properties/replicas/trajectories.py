"""Training steps: parameters equal those of one process, on all ranks."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ddpcheck.causes import replicas as causes
from ddpcheck.check_levels import Level
from ddpcheck.checks import law
from ddpcheck.contract import Capabilities, Determinism, ReplicaSync, needs
from ddpcheck.job import Backward, Clip, Job, Operation, OptimizerSpec, SetTrainable, Step, ZeroGrad
from ddpcheck.models.spec import Linear, ModelSpec
from ddpcheck.oracle import Oracle
from ddpcheck.verdict import Finding

from .. import explicit_examples
from ..drawing import for_all, for_each
from ..explicit_examples import fitting
from ..judges import because
from ..strategies import (
    GRADIENTS,
    MOMENTUM,
    PARAMETERS,
    adam,
    choice,
    models,
    optimizers,
    sgd,
    shards,
    training_job,
    training_jobs,
)
from .comparison import as_one_process
from .gradients import same_bits_in
from .shown_clips import raise_for_wrong_clips
from .shown_values import by_shown_values

if TYPE_CHECKING:
    from ddpcheck.session import Session

MOMENTS = OptimizerSpec("adam", lr=0.02, betas=(0.5, 0.875), eps=0.01)
"""1 - 0.875 is not a square of 1 - 0.5, so the first step distinguishes the positions of eps."""


@law("trajectories", needs.replica, needs.replica.optimizers("sgd"), level=Level.BASIC)
def check_parameters_after_sgd_steps_are_exact(session: Session) -> None:
    """After a few SGD steps, every parameter equals, bit for bit, that of one process on the whole batch.

    With an integer learning rate parameters stay on the lattice where sums are exact.
    """
    world, promised = session.world_size, session.capabilities
    model = models(promised, depths=(1, 2), losses=("linear",))
    for_all(
        session,
        training_jobs(world, promised, model=model, rounds=(2, 1, 3), optimizer=sgd(exact=True)),
        as_one_process(promised),
        examples=fitting(session, [explicit_examples.steps(world, OptimizerSpec(lr=1.0), count=2, exact=True)]),
    )


@law("trajectories", needs.replica, needs.replica.optimizers("sgd"))
def check_sgd_matches_one_process(session: Session) -> None:
    """After 1 to 4 SGD steps, with and without momentum and weight decay, parameters equal those of one process.

    The bound on rounding is carried through gradients, velocity and parameters: ddpcheck.oracle.rounding_bounds.
    """
    _follows(session, sgd(), [explicit_examples.steps(session.world_size, MOMENTUM)])


@law("trajectories", needs.replica, needs.replica.optimizers("adam"))
def check_adam_matches_one_process(session: Session) -> None:
    """After 1 to 4 Adam steps, parameters equal those of one process, up to rounding (bound in ddpcheck.oracle.optimizer)."""
    _follows(session, adam(), [explicit_examples.steps(session.world_size, MOMENTS)])


@law(
    "trajectories",
    needs.replica,
    needs.ranks(2),
    needs.world.determinism(Determinism.BETWEEN_RANKS),
    needs.replica.replica_sync(ReplicaSync.PARAMETERS),
    level=Level.BASIC,
)
def check_replicas_stay_in_sync_bitwise(session: Session) -> None:
    """After every step, every parameter has the same bits on all ranks, whatever the optimizer."""
    world, promised = session.world_size, session.capabilities
    model = models(promised, exact=False, batch_norm=True)
    drawn = training_jobs(
        world, promised, model=model, exact=False, rounds=(2, 4), optimizer=optimizers(promised), observe=()
    )
    examples = fitting(session, [explicit_examples.steps(world, MOMENTUM, count=4)])
    for_all(session, drawn, same_bits_in("parameters"), examples=examples)


@law("trajectories", needs.replica, needs.replica.clipping, needs.replica.optimizers("sgd"))
def check_clipping_uses_the_global_gradient_norm(session: Session) -> None:
    """Clipping scales the synchronised gradients by min(1, max_norm / norm), with the norm that one process would compute. An
    infinite max_norm leaves them unchanged, and one of 0 makes them 0.
    """
    world, promised = session.world_size, session.capabilities
    model = models(promised, exact=False, depths=(1, 2))
    steps = training_jobs(world, promised, model=model, exact=False, rounds=(1, 2), optimizer=sgd())
    drawn = st.builds(_clipping, steps, choice((0.05, 0.5, 100.0)))
    small = _clipping(explicit_examples.steps(world, OptimizerSpec(lr=0.05), count=12), 0.1, look=True)
    only_asked = _clipping(explicit_examples.steps(world, OptimizerSpec(lr=0.05), count=2), math.inf)
    to_zero = _clipping(explicit_examples.steps(world, OptimizerSpec(lr=0.05), count=2), 0.0, look=True)
    examples = fitting(session, [small, _barely_clipped(world, promised), only_asked, to_zero])
    try:
        for_all(session, drawn, as_one_process(promised), examples=examples, further=by_shown_values(session))
    except Finding as finding:
        if finding.diagnosis.subject[0] == "gradients":
            raise_for_wrong_clips(session)
        raise


@law(
    "trajectories",
    needs.replica,
    needs.replica.unfreezing,
    needs.replica.model_features("frozen"),
    needs.replica.optimizers("sgd"),
)
def check_layers_unfrozen_later_are_synchronised(session: Session) -> None:
    """Layers unfrozen during training learn from then on as on one process. Frozen layers have no gradient and do not
    change, even with momentum and weight decay.

    set_trainable() affects exactly the named layers, one or several, even if one name is a prefix of another. Repeating a
    setting has no effect.
    """
    world, tied = session.world_size, "tied" in session.capabilities.replica.model_features
    jobs = [unfreezing(world, OptimizerSpec(lr=1.0), exact=True), unfreezing(world, MOMENTUM, exact=False, tied=tied)]
    jobs.append(unfreezing(world, MOMENTUM, exact=False, before=9))
    cause = causes.FREEZING_DECIDED_EARLY()
    judge = because(as_one_process(session.capabilities), cause)
    for_each(session, fitting(session, jobs), judge, further=by_shown_values(session))


def unfreezing(world_size: int, optimizer: OptimizerSpec, *, exact: bool, tied: bool = False, before: int = 0) -> Job:
    """Steps with these layers frozen in turn: fc1, none (two steps), fc10 and fc3, fc1 and fc3, fc1.

    tied: one more layer uses fc10. before: the number of steps before these.
    """
    first, second = (("fc10",), True), (("fc1",), False)
    switches = ((), ((("fc1",), True),), (), ((("fc10", "fc3"), False),), (first, second), ((("fc10", "fc3"), True),))
    operations: list[Operation] = []
    for number, switched in enumerate(((),) * before + switches):
        operations += [ZeroGrad(), *(SetTrainable(names, trainable) for names, trainable in switched)]
        operations += [Backward(shards([2] * world_size, 2 * number * world_size)), *GRADIENTS, Step(), *PARAMETERS]
    again = [Linear("again", 3, 3, uses="fc10")] * tied
    layers = Linear("fc1", 2, 3, frozen=True), Linear("fc10", 3, 3), *again, Linear("fc3", 3, 2)
    model = ModelSpec(layers, loss="linear", dtype="float64" if exact else "float32")
    return training_job(world_size, model, operations, optimizer, exact=exact)


def _follows(session: Session, optimizer: SearchStrategy[OptimizerSpec], examples: list[Job]) -> None:
    world, promised = session.world_size, session.capabilities
    model = models(promised, exact=False, depths=(1, 2))
    drawn = training_jobs(
        world, promised, model=model, exact=False, rounds=(3, 1, 2, 4), optimizer=optimizer, observe=()
    )
    examples = fitting(session, examples)
    for_all(session, drawn, as_one_process(promised), examples=examples, further=by_shown_values(session))


def _clipping(job: Job, max_norm: float, *, look: bool = False) -> Job:
    """The Job with a clip before each step. look: observe the gradients before it, which explain a wrong norm."""
    clip: tuple[Operation, ...] = (*GRADIENTS * look, Clip(max_norm))
    operations = [inserted for op in job.operations for inserted in ((*clip, op) if isinstance(op, Step) else (op,))]
    return replace(job, operations=tuple(operations))


def _barely_clipped(world_size: int, promised: Capabilities) -> Job:
    """One step whose gradients are clipped to a little less than their norm."""
    step = explicit_examples.steps(world_size, OptimizerSpec(lr=0.05), count=1)
    *_, (norm,) = (
        moment.numbers.values() for moment in Oracle(_clipping(step, 1.0), promised).walk() if "norm" in moment.numbers
    )
    return _clipping(step, 0.97 * float(norm.exact[0]))
