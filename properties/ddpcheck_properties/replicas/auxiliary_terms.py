"""Losses with auxiliary terms: penalties of weights, sizes of activations, auxiliary heads.

Each term counts as often as the samples' own losses. Code that adds a term outside the average, or scales it
separately, counts it once for each rank, or by a rank's share. Slightly wrong gradients then silently train another
model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ddpcheck.checks import law
from ddpcheck.contract import ReplicaMethod, needs
from ddpcheck.job import Backward, Clip, Job, Operation, OptimizerSpec, Resume, Save, SetTrainable, Step, ZeroGrad
from ddpcheck.models.spec import Activation, Activity, Head, Layer, Linear, ModelSpec

from ..drawing import for_each
from ..explicit_examples import fitting
from ..strategies import GRADIENTS, PARAMETERS, shards, training_job
from .comparison import as_one_process

if TYPE_CHECKING:
    from ddpcheck.session import Session

Chain = Callable[[float], tuple[Layer, ...]]
"""Layers with terms of about this coefficient."""


@law("gradients", needs.replica, needs.replica.model_features("penalty"))
def check_weight_penalty_counts_once(session: Session) -> None:
    """A weight penalty in the loss counts once per micro-batch, in the gradient and in each rank's loss, for any number and
    weight of ranks and samples.

    The penalty of a shared weight counts once. The penalty of a frozen weight appears only in the loss.
    """
    world, unfreezing = session.world_size, session.capabilities.has(ReplicaMethod.UNFREEZING)
    _train(session, _penalised, once(world, _shared), frozen_at_first(world, unfreezing=unfreezing))


@law("gradients", needs.replica, needs.replica.model_features("activity"))
def check_activity_term_is_averaged_over_all_samples(session: Session) -> None:
    """A loss term that is the mean size of activations is averaged over ranks, samples and micro-batches, like the rest of
    the loss.
    """
    _train(session, _active)


@law("gradients", needs.replica, needs.replica.model_features("auxiliary_head"))
def check_auxiliary_head_trains_like_other_layers(session: Session) -> None:
    """An auxiliary head gets gradients only from its own loss term. The head and the layers before it are initialised,
    reduced, clipped, trained and saved like all others.
    """
    _train(session, _deeply_supervised)


def _penalised(often: float) -> tuple[Layer, ...]:
    return Linear("fc1", 2, 3, penalty=often), Activation("relu"), Linear("fc2", 3, 2, penalty=2 * often)


def _shared(often: float) -> tuple[Layer, ...]:
    same = Linear("same", 3, 3, penalty=often), Activation("relu"), Linear("tied", 3, 3, uses="same")
    return Linear("fc1", 2, 3), *same, Linear("fc2", 3, 2)


def _active(often: float) -> tuple[Layer, ...]:
    return Linear("fc1", 2, 3), Activity(often), Activation("relu"), Linear("fc2", 3, 2), Activity(2 * often)


def _deeply_supervised(often: float) -> tuple[Layer, ...]:
    head = Head("head", 3, 2, 2 * often)
    return Linear("fc1", 2, 3), Head("early", 3, 2, often, bias=False), Activation("relu"), head, Linear("fc2", 3, 2)


def _train(session: Session, chain: Chain, *more: Job) -> None:
    world, promised = session.world_size, session.capabilities
    jobs = [
        once(world, chain),
        trained(
            world, chain, clipping=promised.has(ReplicaMethod.CLIPPING), saving=promised.has(ReplicaMethod.CHECKPOINT)
        ),
    ]
    jobs.append(accumulated(world, chain, no_sync=promised.has(ReplicaMethod.NO_SYNC)))
    if promised.replica.uneven_batches != "refused":
        jobs.append(uneven(world, chain, exact=promised.replica.uneven_batches != "weighted"))
    if promised.replica.sample_weights is not None:
        jobs.append(weighted(world, chain))
    for_each(session, fitting(session, [*jobs, *more]), as_one_process(promised))


def once(world_size: int, chain: Chain) -> Job:
    """The initial values of a replica, and gradients three times, without a step."""
    operations: list[Operation] = [*PARAMETERS]
    for number in range(3):
        operations += [ZeroGrad(), Backward(shards([4] * world_size, 4 * number * world_size)), *GRADIENTS]
    return training_job(world_size, ModelSpec(chain(1.0), loss="linear"), operations)


def trained(world_size: int, chain: Chain, *, clipping: bool, saving: bool) -> Job:
    """Three clipped steps, of which later ones show mistakes of earlier ones, with a saved state in between."""
    operations: list[Operation] = []
    for number in range(3):
        operations += [ZeroGrad(), Backward(shards([3] * world_size, 3 * number * world_size)), *GRADIENTS]
        operations += [*([Clip(0.5)] * clipping), *GRADIENTS, Step(), *PARAMETERS]
        operations += [Save(), Resume(), *PARAMETERS] if saving and number == 1 else []
    spec = OptimizerSpec(lr=0.125, momentum=0.5)
    return training_job(world_size, ModelSpec(chain(0.25)), operations, spec, exact=False)


def frozen_at_first(world_size: int, *, unfreezing: bool) -> Job:
    """A step with a frozen penalised layer, and one with the layer unfrozen."""
    layers = Linear("fc1", 2, 3, frozen=True, penalty=0.5), Activation("tanh"), Linear("fc2", 3, 2, penalty=0.25)
    operations: list[Operation] = []
    for number in range(2):
        operations += [ZeroGrad(), *([SetTrainable(("fc1",))] * (unfreezing and number == 1))]
        operations += [Backward(shards([2] * world_size, 2 * number * world_size)), *GRADIENTS, Step(), *PARAMETERS]
    return training_job(world_size, ModelSpec(layers), operations, OptimizerSpec(lr=0.125), exact=False)


def accumulated(world_size: int, chain: Chain, *, no_sync: bool) -> Job:
    """Three micro-batches, two of them inside no_sync; then two synchronised ones; with a step in between."""
    windows = [((1, False), (2, False), (2, True))] * no_sync + [((2, True), (1, True))]
    operations: list[Operation] = []
    start = 0
    for window in windows:
        operations.append(ZeroGrad())
        for size, sync in window:
            operations += [Backward(shards([size] * world_size, start), sync=sync), *GRADIENTS]
            start += size * world_size
        operations += [Step(), *PARAMETERS]
    return training_job(world_size, ModelSpec(chain(0.5)), operations, OptimizerSpec(lr=0.125), exact=False)


def uneven(world_size: int, chain: Chain, *, exact: bool) -> Job:
    """Rank 0 has four samples and the others one; then the last rank has none."""
    first = [4] + [1] * (world_size - 1)
    second = [2] * world_size if world_size == 1 else [2] * (world_size - 1) + [0]
    operations: list[Operation] = []
    start = 0
    for sizes in (first, second):
        operations += [ZeroGrad(), Backward(shards(sizes, start)), *GRADIENTS]
        start += sum(sizes)
    return training_job(world_size, ModelSpec(chain(1.0)), operations, exact=exact)


def weighted(world_size: int, chain: Chain) -> Job:
    """Samples with different weights and different sums on each rank; then weights of 0 on the last rank, and on all
    other ranks.
    """
    growing = tuple((0.5, 1.0 + rank, 0.25) for rank in range(world_size))
    last = world_size - 1
    others = tuple((0.0,) * 3 if rank == last else weights for rank, weights in enumerate(growing))
    alone = tuple(weights if rank == last else (0.0,) * 3 for rank, weights in enumerate(growing))
    operations: list[Operation] = []
    for number, weights in enumerate((growing, others, alone)):
        samples = shards([3] * world_size, 3 * number * world_size)
        operations += [ZeroGrad(), Backward(samples, weights=weights), *GRADIENTS]
    return training_job(world_size, ModelSpec(chain(0.5)), operations, exact=False)
