"""Gradient accumulation: gradients are local inside no_sync; the synchronised backward then gives those of the large
accumulated batch, each micro-batch counted once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from ddpcheck import assertions
from ddpcheck.causes import replicas as causes
from ddpcheck.causes.cause import Given
from ddpcheck.causes.gradients import LOSS_DIVIDED_BY_WORLD_SIZE
from ddpcheck.check_levels import Level
from ddpcheck.checks import law
from ddpcheck.contract import Capabilities, needs
from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.ordered_hypotheses.replicas import OF_TWO_FORWARDS
from ddpcheck.hypotheses.replicas.special_runs import TwoForwards
from ddpcheck.job import Backward, CloseWindow, Job, OpenWindow, Operation, OptimizerSpec, Step, ZeroGrad
from ddpcheck.models.spec import Activation, BatchNorm, Layer, Linear, ModelSpec, Scale, mlp
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from .. import explicit_examples
from ..drawing import for_all, for_each
from ..explicit_examples import fitting, window
from ..judges import finding_on, with_causes
from ..strategies import GRADIENTS, PARAMETERS, SEEDS, choice, models, sgd, shards, training_job
from .comparison import as_one_process, ended_inside
from .local_causes import blaming_no_sync, causes_of_two_inside

if TYPE_CHECKING:
    from ddpcheck.session import Session


@law("accumulation", needs.replica, needs.replica.no_sync)
def check_gradients_inside_no_sync_are_local(session: Session) -> None:
    """Inside no_sync, every rank holds the exact sum of its own gradients and nothing of the other ranks' gradients."""
    world, promised = session.world_size, session.capabilities
    jobs = [explicit_examples.accumulation(world, (2, 2, 2), look=True)]
    if promised.replica.uneven_batches == "equal_weight":
        jobs += [with_empty_batches(world), with_empty_batches(world, all_at_last=True)]
    drawn = windows(world, promised, look=True)
    try:
        with blaming_no_sync(session):
            for_all(session, drawn, as_one_process(promised), examples=fitting(session, jobs))
    except Finding as finding:
        told = finding.diagnosis.causes
        if not LOSS_DIVIDED_BY_WORLD_SIZE.explains(told):
            raise
        raise finding.blaming(causes_of_two_inside(session) or told) from None


@law("accumulation", needs.replica, needs.replica.no_sync)
def check_accumulation_counts_every_micro_batch_once(session: Session) -> None:
    """After an accumulation window, the gradient is the sum of the large micro-batches' gradients, each counted once.

    Windows have one to four micro-batches, of equal or different sizes, and one window has 33. Later windows are judged like
    the first.
    """
    world, promised = session.world_size, session.capabilities
    jobs = [
        # the number of ranks gives another factor
        explicit_examples.accumulation(world, (2, 2, 2) if world == 2 else (2, 2)),
        explicit_examples.accumulation(world, (1, 1, 1), (2, 2, 2)),
        explicit_examples.accumulation(world, (4, 1)),
        explicit_examples.accumulation(world, (2,), (1, 1, 1, 1), (2,)),
        explicit_examples.accumulation(world, (1,) * 33, (1,) * 9),
    ]
    with blaming_no_sync(session):
        for_all(session, windows(world, promised), as_one_process(promised), examples=fitting(session, jobs))


@law("accumulation", needs.replica, level=Level.BASIC)
def check_accumulation_without_no_sync_sums_gradients(session: Session) -> None:
    """Several synchronised backwards without zero_grad add up to the sum of the large batches' gradients."""
    world, promised = session.world_size, session.capabilities
    examples = fitting(session, [explicit_examples.accumulation(world, (2, 2, 2), (1, 1), sync=True, look=True)])
    for_all(session, windows(world, promised, sync=True), as_one_process(promised), examples=examples)


@law("accumulation", needs.replica, needs.replica.no_sync, needs.replica.optimizers("sgd"))
def check_accumulated_steps_match_one_process(session: Session) -> None:
    """After steps with accumulated gradients, every replica has the parameters of one process, within rounding."""
    world, promised = session.world_size, session.capabilities
    for_all(session, windows(world, promised, stepping=True), as_one_process(promised))


@law("accumulation", needs.replica, needs.replica.no_sync)
def check_synchronisation_resumes_after_no_sync(session: Session) -> None:
    """A backward after no_sync is synchronised, even if the gradients accumulated inside no_sync were discarded."""
    world, promised = session.world_size, session.capabilities
    with blaming_no_sync(session):
        for_all(session, discarded_windows(world, promised), as_one_process(promised), share=0.5)


@law("accumulation", needs.replica, needs.replica.no_sync)
def check_exception_inside_no_sync_restores_synchronisation(session: Session) -> None:
    """An exception raised inside no_sync() on some or all ranks reaches the training program, and synchronisation is then on
    again. Inside an outer no_sync(), synchronisation stays off.
    """
    world, promised = session.world_size, session.capabilities
    like_one_process = as_one_process(promised)

    def judge(job: Job, trace: Trace) -> None:
        for rank in trace.ranks:
            for seen in rank.records:
                what = f"operation {seen.operation}: an exception raised inside no_sync() on rank {rank.rank}"
                assertions.that(
                    "swallowed" not in seen.values, f"{what} did not come out", causes.EXCEPTIONS_SWALLOWED()
                )
        like_one_process(job, trace)

    everyone = tuple(range(world))
    jobs = [interrupted(world, ranks, again=again) for ranks in (everyone, (world - 1,)) for again in (False, True)]
    jobs.append(interrupted(world, everyone, again=False, nested=True))
    try:
        for_each(session, fitting(session, jobs), judge)
    except Finding as finding:
        if finding.diagnosis.subject[0] == "gradients" and _is_right_without_exceptions(session, finding):
            raise finding.blaming(causes.NO_SYNC_LEFT_BY_EXCEPTION()) from None
        raise ended_inside(finding) from None  # Jobs without an outer no_sync() come first, and have passed


def _is_right_without_exceptions(session: Session, finding: Finding) -> bool:
    """Run the failed Job again, with the same backwards and no exception."""
    assert finding.job is not None
    backwards = (
        replace(each, interrupted=()) if isinstance(each, Backward) else each for each in finding.job.operations
    )
    job = replace(finding.job, operations=tuple(backwards))
    return finding_on(session, job, as_one_process(session.capabilities)) is None


@law("accumulation", needs.replica, needs.replica.two_forwards)
def check_two_forwards_then_one_backward_sums_gradients(session: Session) -> None:
    """Two forward passes and one backward on the sum of their losses give the sum of both batches' gradients. The second
    forward may change buffers and tensors that the first saved for backward; the result is the same.
    """
    world, promised = session.world_size, session.capabilities
    chains: list[tuple[Layer, ...]] = [
        (Linear("fc1", 3, 4), Activation("tanh"), Linear("fc2", 4, 2)),
        (Linear("fc1", 3, 4), Scale("buffer", 4, buffer=True), Linear("fc2", 4, 2)),
        (BatchNorm("norm", 3), Linear("fc1", 3, 2)),
    ]
    jobs = [two_forwards(world, *layers) for layers in chains]
    for_each(session, fitting(session, jobs), with_causes(as_one_process(promised), _causes_of_two_forwards))


def _causes_of_two_forwards(job: Job, trace: Trace, finding: Finding) -> Given:
    told = finding.diagnosis
    return first_cause(OF_TWO_FORWARDS, TwoForwards(told.subject[0], bool(trace.raised), told.causes))


def two_forwards(world_size: int, *layers: Layer) -> Job:
    """Two rounds of two forward passes and one backward, then an ordinary backward on the second, larger batch."""
    first, second = shards([2] * world_size), shards([3] * world_size, 2 * world_size)
    both = (ZeroGrad(), Backward(first, second=second), *GRADIENTS)
    operations: list[Operation] = [*both, *both, ZeroGrad(), Backward(second), *GRADIENTS]
    return training_job(world_size, ModelSpec(layers), operations, exact=False)


def interrupted(world_size: int, ranks: tuple[int, ...], *, again: bool, nested: bool = False) -> Job:
    """A backward inside no_sync that these ranks leave by an exception; then a synchronised backward and a window,
    perhaps after zero_grad (`again`). nested: inside another no_sync(), in which one more backward follows.
    """
    first = Backward(shards([2] * world_size), sync=False, interrupted=ranks)
    more = Backward(shards([2] * world_size, 6 * world_size))
    operations: list[Operation] = [first, *[ZeroGrad()] * again]
    operations = [OpenWindow(), *operations, more, *GRADIENTS, CloseWindow()] if nested else operations
    operations += [Backward(shards([2] * world_size, 2 * world_size)), *GRADIENTS]
    operations += window(world_size, (2, 2), look=True)
    return training_job(world_size, mlp((2, 3, 2)), operations)


def with_empty_batches(world_size: int, *, all_at_last: bool = False) -> Job:
    """A window whose second micro-batch has no samples on the last rank; or whose last one has none on any rank."""
    last = [0 if all_at_last else 2] * world_size
    sizes = [2] * world_size, [2] * (world_size - 1) + [0], last
    operations: list[Operation] = [ZeroGrad()]
    for number, batches in enumerate(sizes, start=1):
        operations += [Backward(shards(batches, 2 * number * world_size), sync=number == len(sizes)), *GRADIENTS]
    return training_job(world_size, mlp((2, 3, 2)), operations)


@st.composite
def windows(
    draw: DrawFn,
    world_size: int,
    capabilities: Capabilities,
    *,
    sync: bool = False,
    look: bool = False,
    stepping: bool = False,
) -> Job:
    """One to three accumulation windows of one to four micro-batches; `stepping`: each followed by a step."""
    model = draw(models(capabilities, exact=not stepping, depths=(1, 2)))
    optimizer = draw(sgd()) if stepping else OptimizerSpec()
    operations: list[Operation] = []
    for _ in range(draw(choice((1, 2, 3)))):
        sizes = draw(choice(((2, 2), (1,), (1, 1, 1), (2, 2, 2, 2), (4, 1), (1, 2), (2, 1, 4))))
        operations += explicit_examples.window(world_size, sizes, sync=sync, look=look or sync)
        operations += [Step(), *PARAMETERS] if stepping else []
    return training_job(world_size, model, operations, optimizer, exact=not stepping, seed=draw(SEEDS))


@st.composite
def discarded_windows(draw: DrawFn, world_size: int, capabilities: Capabilities) -> Job:
    """Backwards inside no_sync, a zero_grad, and a synchronised backward."""
    operations: list[Operation] = [
        Backward(shards([2] * world_size, 2 * world_size * number), sync=False)
        for number in range(draw(choice((1, 2))))
    ]
    operations += [ZeroGrad(), Backward(shards([1] * world_size)), *GRADIENTS]
    model = draw(models(capabilities, depths=(1, 2)))
    return training_job(world_size, model, operations, seed=draw(SEEDS))
