"""Models with unusual parameters: of another dtype or layout, without elements, with sparse gradients.

Engines pack gradients into flat arrays and identify parameters by dtype, address or number, which fails for these first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpcheck.causes import replicas as causes
from ddpcheck.checks import law
from ddpcheck.contract import ReplicaMethod, ReplicaSync, needs
from ddpcheck.job import Backward, Clip, Job, Observe, Operation, OptimizerSpec, Resume, Save, Step, ZeroGrad
from ddpcheck.models.spec import Activation, Embedding, Layer, Linear, ModelSpec, Scale

from ..drawing import for_each
from ..explicit_examples import construction, fitting, one_backward
from ..judges import because
from ..strategies import GRADIENTS, PARAMETERS, shards, training_job
from .comparison import as_one_process
from .construction import from_rank_0
from .gradient_probes import PAST_25_MIB
from .reduction_comparison import local_then_synchronised, reduction_is_tight

if TYPE_CHECKING:
    from ddpcheck.session import Session

_MIXED = (
    Linear("fc1", 2, 5),
    Scale("scale1", 5, wide=True),
    Activation("relu"),
    Scale("scalar", 0),
    Linear("fc2", 5, 5),
    Scale("scale2", 5),
    Scale("scale3", 5, wide=True),
)
"""Neighbours with the same shape and another dtype."""
_FROZEN_AMONG = (
    Linear("frozen1", 2, 5, frozen=True),
    Scale("scale1", 5, wide=True),
    Linear("frozen2", 5, 5, frozen=True),
    Scale("scale2", 5, wide=True),
    Linear("frozen3", 5, 5, frozen=True),
)
"""Frozen layers whose neighbours have another dtype, or that have no neighbours: a bucket with only them is never
full.
"""
_STRIDES = causes.STRIDES_MIXED(parameter="fc1.weight")
_STRIDED = Linear("fc1", 2, 4, strided=True), Activation("relu"), Linear("fc2", 4, 3), Linear("fc3", 3, 3, strided=True)
_EMPTY = Linear("nothing", 2, 0), Linear("from_nothing", 0, 3), Activation("tanh"), Linear("fc", 3, 2)
_SPARSE = Embedding("embedding", 7, 3, sparse=True), Linear("fc", 3, 2)

_LARGE = 20_001
_SMALL = 0.125
"""A norm to which gradients are clipped."""
_MOMENTUM = OptimizerSpec(lr=0.125, momentum=0.5)


@law("buckets", needs.replica, needs.replica.model_features("scale"), needs.replica.model_features("mixed_dtypes"))
def check_mixed_dtype_parameters_keep_their_precision(session: Session) -> None:
    """When float32 and float64 parameters alternate in a model, all gradients equal the large batch, float64 ones to their
    last bits.

    Parameters start with all bits of rank 0 and keep them after steps and from a saved state, with or without frozen ones,
    few or large. All parameters count in the clipping norm.
    """
    world, promised = session.world_size, session.capabilities
    among = one_backward(world, *_FROZEN_AMONG, rounds=2, batch=2), _trained(session, _FROZEN_AMONG)
    _as_one_process(session, *exact_in_both(world), _trained(session, _MIXED), *among)
    if promised.has(ReplicaMethod.CLIPPING):
        _as_one_process(session, _trained(session, _MIXED, max_norm=_SMALL))
    if promised.has(ReplicaMethod.NO_SYNC):
        own = local_then_synchronised(one_backward(world, *_MIXED, batch=2, exact=False))
        for_each(session, fitting(session, [own]), reduction_is_tight(promised))


@law("buckets", needs.replica, needs.replica.model_features("strided"))
def check_column_major_parameters_train_like_row_major(session: Session) -> None:
    """Weights stored column-major, small or large, and past 25 MiB, behave like row-major ones. They start as rank 0's, get
    large-batch gradients, move with every step, and continue from a saved state.
    """
    world, promised = session.world_size, session.capabilities
    if world > 1 and promised.replica.replica_sync >= ReplicaSync.PARAMETERS:
        new = construction(world, *_STRIDED, exact=False)
        for_each(session, fitting(session, [new]), from_rank_0("parameters"))
    large = Linear("fc1", 3, 997, strided=True), Linear("fc2", 997, 41, strided=True)
    jobs = [one_backward(world, *_STRIDED, rounds=3, batch=2), one_backward(world, *large)]
    jobs = [_trained(session, _STRIDED), *jobs, _trained(session, large)]
    if world <= 2:
        jobs.append(one_backward(world, Linear("fc1", 3, PAST_25_MIB // 3, strided=True), batch=1))
    for_each(session, fitting(session, jobs), because(as_one_process(promised), _STRIDES, name="fc1.weight"))


@law("buckets", needs.replica, needs.replica.model_features("empty"))
def check_zero_size_parameters(session: Session) -> None:
    """A model may have zero-size weights and biases, whose gradients are zero-size too. All other parameters train as they
    would without them.
    """
    world = session.world_size
    _as_one_process(session, one_backward(world, *_EMPTY[:2], rounds=3, batch=2), _trained(session, _EMPTY))


@law("buckets", needs.replica, needs.replica.model_features("sparse"))
def check_sparse_gradients_equal_the_large_batch(session: Session) -> None:
    """Gradients that may be stored as sparse rows equal the large batch, whether ranks use the same or different rows, and
    many, often or never. So do sums of several backwards, and parameters after steps.
    """
    world, promised = session.world_size, session.capabilities
    jobs = [one_backward(world, *_SPARSE, rounds=3, batch=batch) for batch in (1, 8)]
    jobs.append(one_backward(world, Embedding("embedding", 160, 2, sparse=True), Linear("fc", 2, 2), batch=64))
    jobs.append(_trained(session, _SPARSE, OptimizerSpec(lr=0.125)))
    if promised.has(ReplicaMethod.NO_SYNC):
        first, second = shards([2] * world), shards([2] * world, 2 * world)
        window: list[Operation] = [ZeroGrad(), Backward(first, sync=False), Backward(second), *GRADIENTS]
        jobs.append(training_job(world, ModelSpec(_SPARSE, loss="linear"), window, exact=False))
    _as_one_process(session, *jobs)


def exact_in_both(world_size: int) -> list[Job]:
    """Small gradients, three times, and large ones. All sums are exact in float32, so the model stays in float32."""
    large = Linear("fc1", 1, _LARGE), Scale("scale1", _LARGE, wide=True), Scale("scale2", _LARGE)
    return [one_backward(world_size, *_MIXED, rounds=3, batch=2), one_backward(world_size, *large)]


def _as_one_process(session: Session, *jobs: Job) -> None:
    for_each(session, fitting(session, jobs), as_one_process(session.capabilities))


def _trained(
    session: Session, layers: tuple[Layer, ...], optimizer: OptimizerSpec = _MOMENTUM, max_norm: float | None = None
) -> Job:
    """Observe a new replica and one that has loaded its state; take two steps, perhaps clipped, and observe both again."""
    world, look = session.world_size, Observe(("parameters",))
    again: list[Operation] = [Save(), Resume(), look] if session.capabilities.has(ReplicaMethod.CHECKPOINT) else []
    operations: list[Operation] = [look, *again]
    for number in range(2):
        operations += [ZeroGrad(), Backward(shards([2] * world, 2 * number * world)), *GRADIENTS]
        operations += [] if max_norm is None else [Clip(max_norm), *GRADIENTS]
        operations += [Step(), *PARAMETERS, *again]
    return training_job(world, ModelSpec(layers, loss="linear"), operations, optimizer, exact=False)
