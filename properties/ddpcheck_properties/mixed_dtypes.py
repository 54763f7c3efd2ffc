"""Models whose parameters have several dtypes, which some engines gather in one flat array."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpcheck.checks import law
from ddpcheck.job import Backward, Job, Observe, Operation, OptimizerSpec, Resume, Save, Step, ZeroGrad
from ddpcheck.model import Activation, Linear, ModelSpec, Scale

from .comparison import as_one_process
from .drawing import for_each
from .gradients import local_then_synchronised, reduction_is_tight
from .pitfalls import fitting, one_backward
from .strategies import GRADIENTS, PARAMETERS, shards, training_job

if TYPE_CHECKING:
    from ddpcheck.session import Session

_CHAIN = (
    Linear("fc1", 2, 5),
    Scale("scale1", 5, wide=True),
    Activation("relu"),
    Scale("scalar", 0),
    Linear("fc2", 5, 5),
    Scale("scale2", 5),
    Scale("scale3", 5, wide=True),
)
"""Neighbours of the same shape, and of another dtype."""

_LARGE = 20_001


@law("buckets", "facet:replica", "feature:scale", "mixed_dtypes")
def check_parameters_of_several_dtypes_keep_their_own(session: Session) -> None:
    """Where parameters of float32 and float64 take turns in a model, few or large ones, all have the gradients of the large
    batch, those of float64 to their own last bits; start with all bits of rank 0's; and go on with them after steps, and from
    a saved state.
    """
    world, promised = session.world_size, session.capabilities
    trained = _trained(world, checkpoint=promised.checkpoint)
    for_each(session, fitting(session, [*exact(world), trained]), as_one_process(promised))
    if promised.no_sync:
        own = local_then_synchronised(one_backward(world, *_CHAIN, batch=2, exact=False))
        for_each(session, fitting(session, [own]), reduction_is_tight(promised))


def exact(world_size: int) -> list[Job]:
    """Small gradients, three times, and large ones. All sums are exact in float32, too, which the model so keeps."""
    large = Linear("fc1", 1, _LARGE), Scale("scale1", _LARGE, wide=True), Scale("scale2", _LARGE)
    return [one_backward(world_size, *_CHAIN, rounds=3, batch=2), one_backward(world_size, *large)]


def _trained(world_size: int, *, checkpoint: bool) -> Job:
    """A look at what a replica starts with, and one that has loaded its state; two steps, and both again."""
    look = Observe(("parameters",))
    again: list[Operation] = [Save(), Resume(), look] if checkpoint else []
    operations: list[Operation] = [look, *again]
    for number in range(2):
        operations += [ZeroGrad(), Backward(shards([2] * world_size, 2 * number * world_size)), *GRADIENTS]
        operations += [Step(), *PARAMETERS, *again]
    optimizer = OptimizerSpec(lr=0.125, momentum=0.5)
    return training_job(world_size, ModelSpec(_CHAIN, loss="linear"), operations, optimizer, exact=False)
