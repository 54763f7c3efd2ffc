"""Steps that are skipped because a gradient is not finite: an overflow, or a broken sample, on one rank first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from ddpcheck.causes import replicas as causes
from ddpcheck.causes.cause import Given
from ddpcheck.checks import law
from ddpcheck.contract import Capabilities, ReplicaMethod, needs
from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.ordered_hypotheses.replicas import OF_A_STEP_NOT_SKIPPED
from ddpcheck.hypotheses.replicas.skipped_steps import NotSkipped, infinity_of_one_sign
from ddpcheck.job import Backward, Clip, Job, Observe, Operation, OptimizerSpec, Resume, Save, Step, ZeroGrad
from ddpcheck.models.spec import Activation, Embedding, Linear, ModelSpec, Scale
from ddpcheck.seeded_values import key_of
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from ..drawing import for_each
from ..explicit_examples import fitting
from ..judges import Judge, because, with_causes
from ..strategies import ADAM, GRADIENTS, PARAMETERS, shards, training_job
from .comparison import as_one_process
from .parameter_averages import LOOK

if TYPE_CHECKING:
    from ddpcheck.session import Session

Poison = Literal["nan", "inf", "-inf"]
ENDS: tuple[Poison, ...] = "inf", "-inf"


@law("trajectories", needs.replica, needs.replica.skips_nonfinite, needs.replica.optimizers("sgd"))
def check_nonfinite_step_is_skipped_on_all_ranks(session: Session) -> None:
    """step() with a NaN or infinity in one rank's gradient changes nothing on any rank: no parameter, average, momentum,
    step count or loss scale. A step with huge but finite gradients is taken.

    Later steps proceed as if the skipped step had not happened. This holds even if the losses, most gradients and the last
    micro-batch are finite, after clipping, and after another skipped step. A NaN that zero_grad cleared causes no skip.
    """
    world = session.world_size
    specs = OptimizerSpec(lr=1.0, momentum=1.0), ADAM
    ends: dict[int, Poison] = {0: "inf", world - 1: "nan"}
    jobs = [
        poisoned(overflow(world, spec), 2 * (world + rank), poison) for spec in specs for rank, poison in ends.items()
    ]
    twice = overflow(world, specs[0], (1, 2), resuming=session.capabilities.has(ReplicaMethod.CHECKPOINT))
    jobs.append(poisoned(twice, (2 * world, 4 * world), "nan"))
    jobs.append(
        poisoned(hidden_overflow(world, clip=session.capabilities.has(ReplicaMethod.CLIPPING)), 2 * world, "inf")
    )
    jobs.append(in_the_last_layer(world))
    jobs += [of_one_sign(world, sign) for sign in ENDS]
    jobs += [averaged(world)] * session.capabilities.has(ReplicaMethod.AVERAGED_WEIGHTS)
    jobs += [in_a_branch(world)] * (session.capabilities.replica.unused_parameters == "synchronised")
    for_each(session, fitting(session, jobs), _skipped(session.capabilities))
    forms = (False, True) if session.capabilities.has(ReplicaMethod.ZEROES_GRADIENTS) else (False,)
    jobs = [cleared_nan(world, to_zeros=to_zeros) for to_zeros in forms]
    cause = causes.SKIPPED_THOUGH_CLEARED()
    for_each(session, fitting(session, jobs), because(as_one_process(session.capabilities), cause))
    if world == 2:  # more ranks show nothing new
        for_each(session, fitting(session, [huge_gradients()]), _not_skipped(session.capabilities))


def overflow(
    world_size: int, optimizer: OptimizerSpec, skipped: tuple[int, ...] = (1,), *, resuming: bool = False
) -> Job:
    """Four steps of two samples per rank; the second, or those `skipped`, must be skipped. resuming: a new replica
    takes the last step.
    """
    operations: list[Operation] = []
    for number in range(4):
        operations += [Save(), Resume()] * (resuming and number == 3)
        operations += [ZeroGrad(), Backward(shards([2] * world_size, number * 2 * world_size))]
        operations += [*(() if number in skipped else GRADIENTS), Step(), *PARAMETERS]
    layers = Linear("fc1", 2, 3), Linear("fc2", 3, 2)
    exact = optimizer.name == "sgd"
    model = ModelSpec(layers, loss="linear", dtype="float64" if exact else "float32")
    return training_job(world_size, model, operations, optimizer, exact=exact)


def averaged(world_size: int) -> Job:
    """As overflow(), and the averages of the parameters are observed."""
    job = overflow(world_size, OptimizerSpec("sgd", lr=0.05, averaging=0.5))
    assert job.model is not None
    looks = (LOOK if isinstance(each, Observe) and "parameters" in each.what else each for each in job.operations)
    made = training_job(world_size, job.model, list(looks), job.optimizer, exact=False)
    return poisoned(made, 2 * world_size, "nan")


def cleared_nan(world_size: int, *, to_zeros: bool) -> Job:
    """Four steps, none to be skipped: a form of zero_grad clears the NaN before the second."""
    job = overflow(world_size, OptimizerSpec(lr=0.05, momentum=0.9), ())
    _, second, *_ = (position for position, each in enumerate(job.operations) if isinstance(each, ZeroGrad))
    lost = ZeroGrad(), Backward(shards([2] * world_size, 8 * world_size)), ZeroGrad(to_zeros)
    operations = [*job.operations[:second], *lost, *job.operations[second + 1 :]]
    assert job.model is not None
    made = training_job(world_size, job.model, operations, job.optimizer, exact=False)
    return poisoned(made, 8 * world_size, "nan")


def of_one_sign(world_size: int, poison: Poison) -> Job:
    """As overflow(), with one infinity as the only non-finite value of the gradients."""
    job = overflow(world_size, OptimizerSpec(lr=1.0))
    return poisoned(
        replace(job, model=ModelSpec((Linear("fc1", 1, 1, bias=False),), loss="linear")), 2 * world_size, poison
    )


def huge_gradients() -> Job:
    """Two ranks, and one step. Losses, and each element of the gradient, fit float32; the gradient's sum does not."""
    scale, limit = 2.0**124, 16.0  # limit: 2^128, the end of float32, in units of the scale
    model = ModelSpec((Embedding("embedding", 3, 128),), loss="linear", loss_scale=scale)
    operations: list[Operation] = [ZeroGrad(), Backward(shards([1] * 2)), *GRADIENTS, Step(), *PARAMETERS]
    for seed in range(999):
        job = replace(training_job(2, model, operations, OptimizerSpec(lr=1 / scale), seed=seed), model=model)
        assert job.data is not None
        ids, targets = job.data.arrays(model)
        losses = (job.initial(0)["embedding.weight"][ids] * targets).sum(axis=1)
        if abs(targets.sum() / 2) > limit + 1 and (abs(losses) < limit - 1).all():
            return job
    raise AssertionError("no seed gives a gradient of these sizes")


SATURATED = Scale("scale", 2), Activation("tanh"), Linear("fc1", 2, 3), Linear("fc2", 3, 2)
"""Behind the tanh an infinite input becomes 1: only the gradient of the scale, 0 times infinity, shows it."""


def hidden_overflow(world_size: int, *, clip: bool) -> Job:
    """As overflow(), with finite losses, mostly finite gradients, and a finite second backward before the step."""
    job = overflow(world_size, OptimizerSpec(lr=0.05, momentum=0.9))
    second: list[Operation] = [Backward(shards([2] * world_size, 8 * world_size)), *[Clip(0.5)] * clip]
    steps = [position for position, operation in enumerate(job.operations) if isinstance(operation, Step)]
    operations = [*job.operations[: steps[1]], *second, *job.operations[steps[1] :]]
    return training_job(world_size, ModelSpec(SATURATED, loss="linear"), operations, job.optimizer, exact=False)


def in_a_branch(world_size: int) -> Job:
    """As hidden_overflow(): only the first branch, which the second backward does not use, has a NaN."""
    job = hidden_overflow(world_size, clip=False)
    operations = list(job.operations)
    _, second, *_ = (position for position, each in enumerate(operations) if isinstance(each, Backward))
    operations[second] = Backward(shards([2] * world_size, 2 * world_size), branches=(("a",),) * world_size)
    front = Linear("branch_a", 2, 2, branch="a")
    model = ModelSpec((front, *SATURATED[1:]), loss="linear")
    # x + W x has no difference of infinities if the weight between the infinite feature and itself is positive
    positive = (seed for seed in range(99) if model.initial(key_of(seed, 0), "real")["branch_a.weight"][0, 0] > 0)
    made = training_job(world_size, model, operations, job.optimizer, exact=False, seed=next(positive))
    return poisoned(made, 2 * world_size, "inf")


def in_the_last_layer(world_size: int) -> Job:
    """Four steps; the second has an infinite target, and a relu stops its gradient."""
    job = overflow(world_size, OptimizerSpec(lr=0.05, momentum=0.9))
    sample = 2 * world_size
    model = ModelSpec((Embedding("embedding", 4, 1), Activation("relu"), Linear("fc1", 1, 2)), loss="linear")
    drawn = (
        training_job(world_size, model, job.operations, job.optimizer, exact=False, seed=seed) for seed in range(99)
    )
    return poisoned(next(made for made in drawn if _is_stopped(made, sample)), sample, "inf")


def _is_stopped(job: Job, sample: int) -> bool:
    """Whether the relu stops the gradient of this sample, after a step too."""
    assert job.data is not None
    assert job.model is not None
    row = job.data.arrays(job.model)[0][sample]
    return bool(job.initial(0)["embedding.weight"][row, 0] < -0.5)


def _not_skipped(promised: Capabilities) -> Judge:
    like_one_process = as_one_process(promised, tolerance=2.0**-20)  # bounds have no use near the end of float32

    def judge(job: Job, trace: Trace) -> None:
        try:
            like_one_process(job, trace)
        except Finding as finding:
            if not trace.completed:
                raise
            seen = [
                each["gradients"] for _, ranks in trace.all_values("observe") for each in ranks if "gradients" in each
            ]
            gradients = [array for found in seen for array in found.values() if array is not None]
            if not all(np.isfinite(array).all() for array in gradients):
                return  # a loss scale may overflow, and the step is then to be skipped
            if finding.diagnosis.subject[0] != "parameters":
                raise
            raise finding.blaming(causes.SKIPPED_THOUGH_FINITE(), finding.diagnosis.causes) from None

    return judge


def _skipped(promised: Capabilities) -> Judge:
    like_one_process = with_causes(as_one_process(promised), _causes_of_a_step)

    def judge(job: Job, trace: Trace) -> None:
        with np.errstate(invalid="ignore"):
            like_one_process(job, trace)

    return judge


def _causes_of_a_step(job: Job, trace: Trace, _: Finding) -> Given:
    if not trace.completed:
        return None
    return first_cause(OF_A_STEP_NOT_SKIPPED, NotSkipped(job, trace)), infinity_of_one_sign(job)


def poisoned(job: Job, samples: int | tuple[int, ...], poison: Poison) -> Job:
    """The Job with a sample, or several, whose first number is NaN or infinite."""
    assert job.data is not None
    samples = (samples,) if isinstance(samples, int) else samples
    return replace(job, data=replace(job.data, poisoned=samples, poison=poison))
