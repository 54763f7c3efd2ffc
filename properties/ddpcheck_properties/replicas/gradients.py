"""Gradients equal those of one process on the whole batch, on every rank, to the last bit where sums are exact."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ddpcheck import assertions
from ddpcheck.causes import replicas as causes
from ddpcheck.causes.gradients import ACCUMULATED_SURVIVES_ZERO_GRAD
from ddpcheck.causes.operations import DROPPED_WINDOW_REMEMBERED
from ddpcheck.causes.programs import REDUCED_EARLY_AFTER_NO_SYNC
from ddpcheck.causes.values import SUMMED_NOT_AVERAGED, ZERO
from ddpcheck.check_levels import Level
from ddpcheck.checks import law
from ddpcheck.contract import Determinism, needs
from ddpcheck.hypotheses.arrays import Evidence
from ddpcheck.job import Backward, Job, Observe, Operation, OptimizerSpec, Step, ZeroGrad
from ddpcheck.models.spec import Activation, BatchNorm, Embedding, Linear, ModelSpec, Scale, mlp
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from .. import explicit_examples
from ..drawing import for_all, for_each
from ..explicit_examples import fitting
from ..judges import Judge, finding_on
from ..strategies import GRADIENTS, PARAMETERS, models, shards, training_job, training_jobs
from .comparison import as_one_process, when
from .local_causes import causes_of_two_inside
from .reduction_comparison import local_then_synchronised, reduction_is_tight
from .shown_values import by_shown_values

if TYPE_CHECKING:
    from ddpcheck.session import Session


@law("gradients", needs.replica, level=Level.BASIC)
def check_gradients_equal_the_large_batch_exactly(session: Session) -> None:
    """After backward, every gradient equals, bit for bit, the gradient that one process computes on all ranks' samples.

    Inputs lie on a lattice where every sum is exact in any order, so no tolerance is needed: ddpcheck.oracle.exactness.
    """
    world, promised = session.world_size, session.capabilities
    for_all(
        session,
        training_jobs(world, promised),
        as_one_process(promised),
        examples=fitting(session, explicit_examples.shapes(world)),
    )


@law("gradients", needs.replica, level=Level.BASIC)
def check_gradients_equal_the_large_batch_within_rounding(session: Session) -> None:
    """For real values, every gradient equals the large-batch gradient up to rounding: |got - exact| <= gamma_m sum|terms|.

    This holds for a loss scaled by 2^-30 or 2^20, for one rank's gradients much larger than the others', and for batch sizes
    without small divisors.
    """
    world, promised = session.world_size, session.capabilities
    jobs = [explicit_examples.scaled(world, factor) for factor in (2.0**-30, 2.0**20)]
    jobs.append(explicit_examples.one_backward(world, Linear("fc1", 3, 2), batch=101, exact=False))
    jobs += [explicit_examples.louder(world)] * (world > 1)
    examples = fitting(session, jobs)
    for_all(session, training_jobs(world, promised, exact=False), as_one_process(promised), examples=examples)


@law("gradients", needs.replica, needs.replica.no_sync, level=Level.BASIC)
def check_gradients_are_the_mean_of_local_gradients(session: Session) -> None:
    """A synchronised gradient equals the mean (or sum) of the ranks' local gradients. Only the rounding of the reduction
    itself is allowed.

    The local gradients are the implementation's own, taken inside no_sync, so only the reduction can be wrong: W - 1
    additions and at most two roundings for the division, gamma_(W + 1) sum|local| / W. If each rank divides its loss
    instead, by no power of two, every product of backward is rounded again: the bound is derived in
    ddpcheck.oracle.divided_losses. It holds for every model; with batch norm, at world sizes that are powers of two.
    """
    world, promised = session.world_size, session.capabilities
    drawn = training_jobs(
        world, promised, model=models(promised, exact=False, batch_norm=True), exact=False, rounds=(1,), observe=()
    ).map(local_then_synchronised)
    layers = Linear("fc1", 3, 4), BatchNorm("norm", 4), Activation("tanh"), Linear("fc2", 4, 2)
    jobs = [explicit_examples.one_backward(world, *layers, batch=3, exact=False)]
    jobs += explicit_examples.shapes(world, (1, 4, 28, 31, 33), exact=False)
    jobs += [
        explicit_examples.one_backward(world, Linear("fc1", 1, size), exact=False, dtype=dtype)
        for size in (1537, 12289)
        for dtype in sorted(promised.replica.replica_dtypes)
    ]
    jobs.append(explicit_examples.large_and_small(world, min(promised.replica.replica_dtypes), exact=False))
    examples = fitting(session, map(local_then_synchronised, jobs))
    try:
        for_all(session, drawn, reduction_is_tight(promised), examples=examples)
    except Finding as finding:
        raise _without_local_backward(session, finding) from None


_OF_LOCAL_BACKWARD = frozenset({ACCUMULATED_SURVIVES_ZERO_GRAD.id, DROPPED_WINDOW_REMEMBERED.id})
"""Causes that blame the backward inside no_sync()."""


def _without_local_backward(session: Session, finding: Finding) -> Finding:
    """The finding; at world size 2, a sum in place of a mean looks like the backward inside no_sync, counted again, and
    at any world size like local gradients that are divided. An error may have come from that backward. Jobs with one
    kind of backward tell which.
    """
    job, told = finding.job, finding.diagnosis.causes
    survives = [cause for cause in told if cause.id in _OF_LOCAL_BACKWARD]
    others = tuple(cause for cause in told if cause not in survives)
    zero = ZERO.explains(told)
    if job is None or not (survives or zero or SUMMED_NOT_AVERAGED.explains(others)):
        return finding
    alone = replace(job, operations=job.operations[len(job.operations) // 2 :])
    wrong = finding_on(session, alone, as_one_process(session.capabilities))
    if wrong is not None:
        return finding.blaming(wrong.diagnosis.causes or others)
    if zero:
        return finding.blaming(REDUCED_EARLY_AFTER_NO_SYNC(), told)
    if DROPPED_WINDOW_REMEMBERED.explains(told):
        return finding
    return finding.blaming(causes_of_two_inside(session) or (*survives, *others))


@law("gradients", needs.replica, needs.ranks(2), needs.world.determinism(Determinism.BETWEEN_RANKS), level=Level.BASIC)
def check_gradients_are_bitwise_equal_on_all_ranks(session: Session) -> None:
    """After backward, every gradient has the same bits on all ranks, with any rounding."""
    world, promised = session.world_size, session.capabilities
    drawn = training_jobs(world, promised, model=models(promised, exact=False, batch_norm=True), exact=False)
    for_all(session, drawn, same_bits_in("gradients"))


@law("gradients", needs.replica, needs.ranks(2), needs.replica.uneven_batches("equal_weight"))
def check_uneven_batches_count_equally_per_rank(session: Session) -> None:
    """When batch sizes differ between ranks, the gradient is the mean of the ranks' local means, each with equal weight.

    A rank without samples counts with loss 0 and zero gradients. It takes part in all operations, including steps.
    """
    _uneven(session)


@law("gradients", needs.replica, needs.ranks(2), needs.replica.uneven_batches("weighted"))
def check_uneven_batches_are_weighted_by_size(session: Session) -> None:
    """When batch sizes differ between ranks, the gradient is the mean over all samples, as on one process."""
    _uneven(session)


@law("gradients", needs.replica, level=Level.BASIC)
def check_large_and_one_element_gradients_are_exact(session: Session) -> None:
    """Gradients are exact at every step for tensors larger than the usual bucket sizes and for one-element tensors beside
    them.
    """
    promised = session.capabilities
    jobs = [
        explicit_examples.large_and_small(session.world_size, dtype)
        for dtype in sorted(promised.replica.replica_dtypes)
    ]
    for_each(session, fitting(session, jobs), as_one_process(promised))


@law("gradients", needs.replica, level=Level.BASIC)
def check_zero_grad_resets_gradients(session: Session) -> None:
    """After zero_grad, gradients are None or zero. The next backward's gradients contain nothing of the previous backward."""
    world, promised = session.world_size, session.capabilities
    drawn = training_jobs(world, promised, rounds=(2,)).map(_looking_after_zero_grad)
    for_all(session, drawn, as_one_process(promised), share=0.3)


@law("gradients", needs.replica, level=Level.BASIC)
def check_backward_does_not_change_parameters(session: Session) -> None:
    """Backward, synchronised or not, changes no bit of any parameter on any rank, before and after a step."""
    world, promised = session.world_size, session.capabilities
    look = Observe(("parameters",))
    first, second = (Backward(shards([2] * world, start)) for start in (0, 2 * world))
    after_a_step: tuple[Operation, ...] = (ZeroGrad(), first, Step(), look, ZeroGrad(), second, look)
    stepped = training_job(world, mlp((2, 3, 1)), after_a_step, OptimizerSpec(lr=0.05), exact=False)
    drawn = training_jobs(world, promised, exact=False, observe=(look,)).map(
        lambda job: replace(job, operations=(look, *job.operations))
    )
    for_all(session, drawn, _unchanged_parameters, examples=fitting(session, [stepped]), share=0.3)


def _uneven(session: Session) -> None:
    world, promised = session.world_size, session.capabilities
    judge = as_one_process(promised)
    nobody = [[2 * (rank != empty) for rank in range(world)] for empty in (world - 1, 0)]
    exact = promised.replica.uneven_batches != "weighted"  # the sum of the sizes is not a power of two
    examples = [explicit_examples.uneven(world, exact=exact, batches=batches) for batches in ((), *nobody)]
    ids = ModelSpec((Embedding("embedding", 5, 3), Scale("scalar", 0), Linear("fc1", 3, 4)), loss="cross_entropy")
    examples.append(explicit_examples.uneven(world, exact=False, batches=nobody[0], model=ids))
    examples += [_uneven_steps(world, sizes) for sizes in (nobody[0], [70] + [3] * (world - 1))]
    buffered = ModelSpec((Linear("fc1", 2, 3), Scale("scale", 3, buffer=True), Linear("fc2", 3, 1)), loss="linear")
    examples.append(explicit_examples.uneven(world, exact=False, batches=nobody[0], model=buffered))
    drawn, examples = training_jobs(world, promised, uneven=True), fitting(session, examples)
    for_all(session, drawn, judge, examples=examples, share=0.5, further=by_shown_values(session))
    for_all(session, training_jobs(world, promised, exact=False, uneven=True), judge, share=0.5)


def _uneven_steps(world_size: int, batches: list[int]) -> Job:
    """Two steps; the second reverses the ranks' batch sizes."""
    operations: list[Operation] = []
    for number, sizes in enumerate((batches, batches[::-1])):
        backward = Backward(shards(sizes, number * sum(batches)))
        operations += [ZeroGrad(), backward, *GRADIENTS, Step(), *PARAMETERS]
    return training_job(world_size, mlp((2, 3, 1)), operations, OptimizerSpec(lr=0.05), exact=False)


def _looking_after_zero_grad(job: Job) -> Job:
    operations: list[Operation] = []
    for operation in job.operations:
        operations += [operation, *GRADIENTS] if isinstance(operation, ZeroGrad) else [operation]
    return replace(job, operations=tuple(operations))


def _unchanged_parameters(job: Job, trace: Trace) -> None:
    assertions.completed(trace)
    looks = list(trace.all_values("observe"))
    for position, ranks in looks[1:]:
        for rank, seen in enumerate(ranks):
            for name, value in seen["parameters"].items():
                before = [first["parameters"][name] for first in looks[0][1]]
                mean = np.asarray(sum(before[1:], before[0]) / job.world_size, before[0].dtype)
                known = Evidence(
                    precision=False,
                    otherwise=causes.BACKWARD_MOVES_PARAMETERS(),
                    alternatives=((causes.PARAMETER_AVERAGED(), mean), (causes.BROADCAST_IN_FORWARD(), before[0])),
                )
                assertions.same_array(value, before[rank], f"parameter {name} ({when(job, position)})", rank, known)


def same_bits_in(what: str) -> Judge:
    """A judge: every observed array of this kind has the same bits on all ranks."""

    def judge(job: Job, trace: Trace) -> None:
        assertions.completed(trace)
        for position, ranks in trace.all_values("observe"):
            for name in ranks[0].get(what, ()):
                values = [rank[what][name] for rank in ranks]
                assertions.same_on_all_ranks(values, f"{what.removesuffix('s')} {name} ({when(job, position)})")

    return judge
