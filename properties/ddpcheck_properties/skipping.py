"""Steps that are skipped, as a gradient is not finite: an overflow, or a broken sample, on one rank at first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from ddpcheck.capabilities import Capabilities
from ddpcheck.checks import law
from ddpcheck.job import Backward, Clip, Job, Operation, OptimizerSpec, Step, ZeroGrad
from ddpcheck.model import Activation, Linear, ModelSpec, Scale
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from .comparison import as_one_process
from .drawing import Judge, for_each
from .pitfalls import fitting
from .strategies import GRADIENTS, PARAMETERS, shards, training_job

if TYPE_CHECKING:
    from ddpcheck.session import Session

Poison = Literal["nan", "inf"]


@law("trajectories", "facet:replica", "skips_nonfinite", "optimizer:sgd")
def check_a_step_with_nan_is_skipped_on_all_ranks(session: Session) -> None:
    """A NaN or infinity in one rank's gradient makes step() leave everything as it is on all ranks, and later steps lead
    where they lead without it: parameters, momentum, counts of steps and loss scales. Losses, most gradients and the last
    micro-batch may be finite, and clipping may come before.
    """
    world = session.world_size
    specs = OptimizerSpec(lr=1.0, momentum=1.0), OptimizerSpec("adam", lr=0.02, betas=(0.5, 0.75), eps=0.01)
    ends: dict[int, Poison] = {0: "inf", world - 1: "nan"}
    jobs = [
        poisoned(overflow(world, spec), 2 * (world + rank), poison) for spec in specs for rank, poison in ends.items()
    ]
    jobs.append(poisoned(hidden_overflow(world, clip=session.capabilities.clipping), 2 * world, "inf"))
    for_each(session, fitting(session, jobs), _skipped(session.capabilities))


def overflow(world_size: int, optimizer: OptimizerSpec) -> Job:
    """Four steps of two samples per rank, of which the second is to be skipped."""
    operations: list[Operation] = []
    for number in range(4):
        operations += [ZeroGrad(), Backward(shards([2] * world_size, number * 2 * world_size))]
        operations += [*(GRADIENTS if number != 1 else ()), Step(), *PARAMETERS]
    layers = Linear("fc1", 2, 3), Linear("fc2", 3, 2)
    exact = optimizer.name == "sgd"
    model = ModelSpec(layers, loss="linear", dtype="float64" if exact else "float32")
    return training_job(world_size, model, operations, optimizer, exact=exact)


SATURATED = Scale("scale", 2), Activation("tanh"), Linear("fc1", 2, 3), Linear("fc2", 3, 2)
"""Behind the tanh an infinite input is 1: only the gradient of the scale, 0 times infinity, tells of it."""


def hidden_overflow(world_size: int, *, clip: bool) -> Job:
    """As overflow(), where losses and most gradients are finite, and so is a second backward before the step."""
    job = overflow(world_size, OptimizerSpec(lr=0.05, momentum=0.9))
    second: list[Operation] = [Backward(shards([2] * world_size, 8 * world_size)), *[Clip(0.5)] * clip]
    steps = [position for position, operation in enumerate(job.operations) if isinstance(operation, Step)]
    operations = [*job.operations[: steps[1]], *second, *job.operations[steps[1] :]]
    return training_job(world_size, ModelSpec(SATURATED, loss="linear"), operations, job.optimizer, exact=False)


def _skipped(promised: Capabilities) -> Judge:
    as_ever = as_one_process(promised)

    def judge(job: Job, trace: Trace) -> None:
        try:
            with np.errstate(invalid="ignore"):
                as_ever(job, trace)
        except Finding as finding:
            if not trace.completed:
                raise
            hidden = job.model is not None and job.model.layers == SATURATED
            noted = replace(finding.diagnosis, cause=_why_not_skipped(trace, hidden=hidden))
            raise Finding(noted) from None

    return judge


def _why_not_skipped(trace: Trace, *, hidden: bool) -> str:
    """hidden: whether it was the step of hidden_overflow()."""
    looks = [ranks for _, ranks in trace.all_values("observe")]
    (before, after), later = [[rank["parameters"] for rank in looks[number]] for number in (1, 2)], looks[3]
    moved = [
        any(not np.array_equal(old[name], new[name]) for name in old) for old, new in zip(before, after, strict=True)
    ]
    went = ", ".join(str(rank) for rank, changed in enumerate(moved) if changed)
    if all(moved):
        taken = "the step with a NaN or infinity was taken, on every rank"
        return taken + hidden * f": {_HIDDEN}"
    if any(moved):
        return (
            f"rank {went} took the step that others skipped: each decides by its own gradient, not the synchronised one"
        )
    gradients = [rank["gradients"] for rank in later]
    if any(not np.array_equal(gradients[0][name], other[name]) for other in gradients for name in gradients[0]):
        return "gradients differ after the skipped step: the ranks' loss scales do, as only some saw the overflow"
    return "the skipped step left something behind: momentum, a count of steps, or a loss scale"


_HIDDEN = (
    "the loss, all gradients but one, and the last micro-batch are finite there, and clipping may come before: it is decided "
    "by one of these"
)


def poisoned(job: Job, sample: int, poison: Poison) -> Job:
    """The Job with a sample whose first number is NaN or infinite."""
    assert job.data is not None
    return replace(job, data=replace(job.data, poisoned=(sample,), poison=poison))
