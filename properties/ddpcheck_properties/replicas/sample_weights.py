"""Sample weights, such as token masks: the loss of each rank, and the weights of ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpcheck.checks import law
from ddpcheck.contract import ReplicaMethod, needs
from ddpcheck.job import Backward, Job, Operation, OptimizerSpec, Step, ZeroGrad
from ddpcheck.models.spec import Embedding, Linear, ModelSpec, mlp
from ddpcheck.trace import Trace

from ..drawing import for_each
from ..explicit_examples import fitting
from ..strategies import GRADIENTS, PARAMETERS, shards, training_job
from .comparison import as_one_process
from .unchanged_arrays import states_and_batches_unchanged

if TYPE_CHECKING:
    from ddpcheck.session import Session

Weights = tuple[tuple[float, ...], ...]


@law("gradients", needs.replica, needs.replica.sample_weights("by_weight"), needs.replica.gradient("mean"))
def check_sample_weights_are_normalised_over_all_ranks(session: Session) -> None:
    """With sample weights (token masks included), the gradient equals that of one process on all ranks' samples: sum_i w_i
    g_i / sum_i w_i. Each rank counts by its own sum of weights.

    A rank without any weight adds nothing; if no rank has any, loss and gradients are 0. Weights do not change.
    """
    _weigh(session)


@law("gradients", needs.replica, needs.replica.sample_weights("equal_ranks"))
def check_sample_weights_are_normalised_per_rank(session: Session) -> None:
    """With sample weights (token masks included), the gradient is the mean (or sum) of the ranks' own weighted means, sum_i
    w_i g_i / sum_i w_i.

    A rank without any weight counts with loss 0 and zero gradients. Weights do not change.
    """
    _weigh(session)


def _weigh(session: Session) -> None:
    world, promised = session.world_size, session.capabilities
    jobs = [
        weighted_steps(world),
        light(world),
        light(world, 2.0**-20),
        masked(world),
        accumulated(world, no_sync=promised.has(ReplicaMethod.NO_SYNC)),
    ]
    if promised.has(ReplicaMethod.NO_SYNC):
        jobs.append(masked_windows(world, each=promised.replica.sample_weights == "equal_ranks"))
    if promised.replica.uneven_batches == "equal_weight":
        jobs.append(weights_of_uneven_batches(world))
    like_one_process = as_one_process(promised)

    def judge(job: Job, trace: Trace) -> None:
        like_one_process(job, trace)
        states_and_batches_unchanged(job, trace)

    for_each(session, fitting(session, jobs), judge)


def weighted_steps(world_size: int) -> Job:
    """Three steps with different weights for each sample and different sums on each rank."""
    rounds = [_growing(world_size, number) for number in range(3)]
    model = mlp((2, 3, 2), activation="tanh")
    return _trained(world_size, model, rounds, OptimizerSpec(lr=0.125, momentum=0.5))


def light(world_size: int, factor: float = 1.0) -> Job:
    """Weights that sum to less than 1 over all ranks, which a floor of the divisor changes; with a small factor, weights
    that a guard against a division by zero changes.
    """
    factor /= 8 * world_size
    weights = tuple(tuple(factor * weight for weight in ranks) for ranks in _growing(world_size, 0))
    return _trained(world_size, mlp((2, 3, 2), activation="tanh"), [weights], OptimizerSpec(lr=0.125))


def weights_of_uneven_batches(world_size: int) -> Job:
    """Rank 0 has three samples and the others one: sums of weights are not proportional to sample counts."""
    weights = (0.5, 0.25, 0.25), *((1.5 + rank,) for rank in range(1, world_size))
    return _trained(world_size, mlp((2, 3, 2), activation="tanh"), [weights], OptimizerSpec(lr=0.125))


def masked(world_size: int) -> Job:
    """Masks of four tokens, with a length that depends on the rank; none on the last rank, then on rank 0, then on any rank."""
    lengths = [[1 + rank % 3 for rank in range(world_size)]]
    lengths += [[length * (rank != empty) for rank, length in enumerate(lengths[0])] for empty in (world_size - 1, 0)]
    lengths.append([0] * world_size)
    rounds = [tuple((1.0,) * length + (0.0,) * (4 - length) for length in ranks) for ranks in lengths]
    model = ModelSpec((Embedding("embedding", 5, 3), Linear("fc1", 3, 4)), loss="cross_entropy")
    return _trained(world_size, model, rounds, OptimizerSpec(lr=0.125))


def accumulated(world_size: int, *, no_sync: bool) -> Job:
    """Two micro-batches, the first inside no_sync, in which each rank has equal sums of weights, so that its share of
    all weights is the same in both; then two synchronised ones, with different sums.
    """
    windows = [[_growing(world_size, 0), _growing(world_size, 0, backwards=True)]] * no_sync
    windows.append([_growing(world_size, 1), _growing(world_size, 2)])
    operations: list[Operation] = []
    start = 0
    for local, (first, last) in zip((True, False)[-len(windows) :], windows, strict=True):
        operations.append(ZeroGrad())
        for weights, sync in ((first, not local), (last, True)):
            operations.append(_backward(weights, start, sync=sync))
            start += 3 * world_size
        operations += GRADIENTS
    return training_job(world_size, mlp((2, 3, 2), activation="tanh"), operations, exact=False)


def masked_windows(world_size: int, *, each: bool) -> Job:
    """Windows of two micro-batches whose first has no weights on any rank, and so adds nothing. A rank without weights
    in both adds nothing either, while the other ranks have equal sums in both. each: ranks count equally, so a rank may
    have no weights in one of the two, and the last micro-batch may have none on any rank. If ranks count by their sums,
    such a window is left out, because the implementation decides on a rank's share.
    """
    usual, turned = _growing(world_size, 0), _growing(world_size, 0, backwards=True)
    none: Weights = ((0.0,) * 3,) * world_size
    windows = [
        (none, usual),
        (usual[:-1] + none[-1:], turned[:-1] + none[-1:]),
        (none[:1] + usual[1:], none[:1] + turned[1:]),
    ]
    if each:
        ends = usual[:-1] + none[-1:], none[:1] + usual[1:]
        windows += [(usual, none), (ends[0], usual), (usual, ends[1])]
    operations: list[Operation] = []
    for number, (first, last) in enumerate(windows):
        start = 6 * world_size * number
        operations += [ZeroGrad(), _backward(first, start, sync=False), _backward(last, start + 3 * world_size)]
        operations += GRADIENTS
    return training_job(world_size, mlp((2, 3, 2), activation="tanh"), operations, exact=False)


def _trained(world_size: int, model: ModelSpec, rounds: list[Weights], optimizer: OptimizerSpec) -> Job:
    operations: list[Operation] = []
    start = 0
    for weights in rounds:
        operations += [ZeroGrad(), _backward(weights, start), *GRADIENTS, Step(), *PARAMETERS]
        start += sum(map(len, weights))
    return training_job(world_size, model, operations, optimizer, exact=False)


def _backward(weights: Weights, start: int, *, sync: bool = True) -> Backward:
    return Backward(shards(list(map(len, weights)), start), sync=sync, weights=weights)


def _growing(world_size: int, number: int, *, backwards: bool = False) -> Weights:
    """Weights for three samples of each rank, one of which is sometimes 0."""
    found = []
    for rank in range(world_size):
        ranks = (0.5, 1.0 + (rank + number) % world_size, 0.25 * ((rank + number) % 2))
        found.append(ranks[::-1] if backwards else ranks)
    return tuple(found)
