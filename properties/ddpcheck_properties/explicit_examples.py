"""Jobs for known pitfalls, each the smallest that shows it: explicit examples of the drawn checks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpcheck.job import Backward, Job, Observe, Operation, OptimizerSpec, Step, ZeroGrad
from ddpcheck.models.spec import Activation, BatchNorm, Embedding, Layer, Linear, ModelSpec, Scale, mlp

from .drawing import within_promises
from .strategies import GRADIENTS, PARAMETERS, branching, rotated, shards, training_job

if TYPE_CHECKING:
    from ddpcheck.session import Session

SIZES = (5, 1, 2, 3, 4, 8, 16, 28, 29, 30, 31, 32, 33, 64, 65)
"""Numbers of elements around the sizes of small messages, chunks and world sizes. The first has few divisors, for the
clearest message.
"""


def fitting(session: Session, jobs: Iterable[Job]) -> list[Job]:
    """The Jobs that the session's promises allow."""
    promised = session.capabilities
    return [
        job
        for job in (within_promises(job, promised) for job in jobs)
        if job.model is not None
        and job.model.features() <= promised.replica.model_features
        and job.model.dtype in promised.replica.replica_dtypes
        and job.optimizer.name in promised.replica.optimizers
    ]


def one_backward(
    world_size: int, *layers: Layer, rounds: int = 1, batch: int = 1, exact: bool = True, dtype: str = "float32"
) -> Job:
    """A model of these layers under the linear loss: a few rounds of zero_grad, backward and an observation of gradients."""
    operations: list[Operation] = []
    for number in range(rounds):
        operations += [ZeroGrad(), Backward(shards([batch] * world_size, number * batch * world_size)), *GRADIENTS]
    return training_job(world_size, ModelSpec(layers, loss="linear", dtype=dtype), operations, exact=exact)


def shapes(world_size: int, sizes: Sequence[int] = SIZES, *, exact: bool = True) -> list[Job]:
    """A tensor of every size beside a scalar; one number in all; tied, frozen, embedding and buffer layers; a second and third
    backward.
    """
    chains: list[tuple[Layer, ...]] = [(Linear("fc1", 1, size), Scale("scale", 0)) for size in sizes]
    chains += [
        (Linear("fc1", 1, 1, bias=False),),
        (Linear("fc1", 2, 2), Linear("fc2", 2, 2, uses="fc1")),
        (Linear("fc1", 2, 3, frozen=True), Linear("fc2", 3, 1)),
        (Embedding("embedding", 5, 2), Linear("fc1", 2, 2)),
        (Scale("scale", 3, buffer=True), Linear("fc1", 3, 2)),
    ]
    several = Linear("fc1", 3, 7), Activation("relu"), Linear("fc2", 7, 5)
    return [
        *(one_backward(world_size, *layers, batch=2, exact=exact) for layers in chains),
        one_backward(world_size, *several, rounds=3, batch=2, exact=exact),
        one_backward(world_size, *several, batch=128, exact=exact),
    ]


def large_and_small(world_size: int, dtype: str, *, exact: bool = True) -> Job:
    """270,400 elements (past 1 MiB in float32) between tensors of 1 and of 520 elements."""
    layers = Linear("small", 1, 520), Linear("large", 520, 520), Scale("scalar", 0)
    return one_backward(world_size, *layers, rounds=2, exact=exact, dtype=dtype)


def scaled(world_size: int, factor: float) -> Job:
    """A small network whose loss, and so its gradients, are `factor` times as large."""
    job = one_backward(world_size, Linear("fc1", 2, 3), Activation("tanh"), Linear("fc2", 3, 2), batch=2, exact=False)
    assert job.model is not None
    return replace(job, model=replace(job.model, loss_scale=factor))


def louder(world_size: int) -> Job:
    """The last rank's gradient is thousands of times larger than all others, which must still count."""
    layers = Linear("fc1", 2, 3), Activation("tanh"), Linear("fc2", 3, 2)
    job = one_backward(world_size, *layers, batch=2, exact=False)
    assert job.data is not None
    return replace(job, data=replace(job.data, loud=tuple(range(2 * world_size - 2, 2 * world_size))))


def uneven(world_size: int, *, exact: bool = True, batches: Sequence[int] = (), model: ModelSpec | None = None) -> Job:
    """Rank 0 has four samples, the others one (or as in `batches`), then rank 1 has four; no two ranks have equal
    gradients.
    """
    batches = batches or [4] + [1] * (world_size - 1)
    operations: list[Operation] = []
    for number in range(2):
        backward = Backward(shards(rotated(batches, -number), number * sum(batches)))
        operations += [ZeroGrad(), backward, *GRADIENTS]
    return training_job(world_size, model or mlp((2, 3, 1)), operations, exact=exact)


def steps(world_size: int, optimizer: OptimizerSpec, *, count: int = 3, exact: bool = False) -> Job:
    """A small network trained for a few steps, with its parameters observed after each."""
    operations: list[Operation] = []
    for number in range(count):
        operations += [ZeroGrad(), Backward(shards([2] * world_size, number * 2 * world_size)), Step(), *PARAMETERS]
    model = mlp((2, 3, 2), loss="linear" if exact else "squared_error", dtype="float64" if exact else "float32")
    return training_job(world_size, model, operations, optimizer, exact=exact)


def window(world_size: int, sizes: Sequence[int], *, sync: bool = False, look: bool = False) -> list[Operation]:
    """One accumulation window: a micro-batch of each size, all but the last inside no_sync (or also synchronised)."""
    operations: list[Operation] = [ZeroGrad()]
    start = 0
    for number, size in enumerate(sizes, start=1):
        operations.append(Backward(shards([size] * world_size, start), sync=sync or number == len(sizes)))
        operations += GRADIENTS if look or number == len(sizes) else ()
        start += size * world_size
    return operations


def accumulation(world_size: int, *sizes: Sequence[int], sync: bool = False, look: bool = False) -> Job:
    """Accumulation windows with these micro-batch sizes; with this seed no two ranks have equal gradients in any of
    them.
    """
    operations = [
        operation for window_sizes in sizes for operation in window(world_size, window_sizes, sync=sync, look=look)
    ]
    return training_job(world_size, mlp((2, 3, 2)), operations, seed=6)


def branches(
    world_size: int, names: str, *taken: Sequence[str], optimizer: OptimizerSpec | None = None, width: int = 2
) -> Job:
    """Steps in which rank r takes the branches taken[step][r % len]: "" for none, "ab" for both."""
    operations: list[Operation] = []
    for number, ranks in enumerate(taken):
        active = tuple(tuple(ranks[rank % len(ranks)]) for rank in range(world_size))
        operations += [
            ZeroGrad(),
            Backward(shards([2] * world_size, number * 2 * world_size), branches=active),
            *GRADIENTS,
        ]
        operations += [Step(), *PARAMETERS] if optimizer else []
    exact = optimizer is None
    return training_job(world_size, branching(width, names), operations, optimizer, exact=exact)


def construction(world_size: int, *layers: Layer, exact: bool = True) -> Job:
    """A Job that only observes a new replica."""
    return training_job(world_size, ModelSpec(layers), [Observe(("parameters", "buffers"))], exact=exact)


def statistics(world_size: int, rounds: int = 3, *, uneven: bool = False, local: bool = False) -> Job:
    """Batch norm as first layer, so that its statistics are exact: forward passes in training mode, buffers after each.

    uneven: rank r has r samples more than the usual three. local: the second pass is inside no_sync.
    """
    batches = [3 + rank * uneven for rank in range(world_size)]
    operations: list[Operation] = []
    for number in range(rounds):
        backward = Backward(shards(batches, number * sum(batches)), sync=not local or number != 1)
        operations += [ZeroGrad(), backward, Observe(("buffers",))]
    layers = (BatchNorm("norm", 3), Linear("fc1", 3, 2))
    return training_job(world_size, ModelSpec(layers), operations, exact=False)
