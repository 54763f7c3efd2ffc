"""Training runs as Jobs: their drawing, and the same run as a Job of single steps, which the oracle can replay.

A run reports the samples that each rank used, in order. So one process can repeat the same batches; a window of
micro-batches is one large batch there.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from ddpcheck.contract import Capabilities, ReplicaMethod
from ddpcheck.job import DataSpec, Job, OptimizerSpec, Train
from ddpcheck.models.spec import Activation, Activity, Embedding, Head, Layer, Linear, ModelSpec

LOOSE = 64.0
"""A norm far above all gradients of these runs, so that nothing is clipped."""


@st.composite
def runs(draw: DrawFn, world_size: int, promised: Capabilities, *, features: AbstractSet[str] = frozenset()) -> Job:
    """A Job of one short training run, with these of TrainerPromises.trainer_features."""
    plan = Train(
        epochs=draw(st.integers(1, 3)),
        batch_size=draw(st.sampled_from((2, 1, 3))),
        shuffle=draw(st.booleans()),
        seed=draw(st.integers(0, 99)),
        max_norm=draw(st.sampled_from((None, 0.25, LOOSE))) if promised.has(ReplicaMethod.CLIPPING) else None,
        micro_batches=draw(st.integers(2, 3)) if "accumulation" in features else 1,
        schedule="linear" if "schedule" in features else "constant",
        keep_best="best" in features,
    )
    samples = draw(st.integers(2 * world_size, 5 * world_size))
    return run_job(
        world_size, promised, samples, plan, seed=draw(st.integers(0, 99)), momentum=draw(st.sampled_from((0.0, 0.5)))
    )


def run_job(
    world_size: int,
    promised: Capabilities,
    samples: int,
    *plans: Train,
    seed: int = 0,
    momentum: float = 0.0,
    lr: float = 0.125,
) -> Job:
    """A Job of these runs, of a small network on real numbers."""
    dtype = "float64" if "float64" in promised.replica.replica_dtypes else "float32"
    layers = (Linear("fc1", 3, 2), Activation("tanh"), Linear("fc2", 2, 2))
    model = ModelSpec(layers, "squared_error", dtype=dtype)
    return Job(world_size, plans, model, OptimizerSpec("sgd", lr, momentum), DataSpec(samples, "real", seed), seed)


HUGE = 2.0**40
OTHER_OPTIMIZERS = (
    OptimizerSpec(lr=0.125, momentum=0.5, weight_decay=0.25),
    OptimizerSpec("adam", lr=0.02, weight_decay=0.125, betas=(0.5, 0.75), eps=0.01),
)


def equal_losses(world_size: int, promised: Capabilities, plan: Train) -> list[Job]:
    """A run whose losses are all exactly 0, although weight decay changes the parameters."""
    job = run_job(world_size, promised, 3 * world_size, plan)
    assert job.model is not None
    return [replace(job, optimizer=OTHER_OPTIMIZERS[0], model=replace(job.model, loss_scale=0.0))]


def with_huge_losses(job: Job, promised: Capabilities) -> list[Job]:
    """The Job with losses of 2^40 and more, and steps as large as before, unless gradients are sent in fewer bits."""
    assert job.model is not None
    if promised.replica.reduction_dtype != "model":
        return []
    slow = replace(job.optimizer, lr=job.optimizer.lr / HUGE)
    return [replace(job, optimizer=slow, model=replace(job.model, loss_scale=HUGE * job.model.loss_scale))]


def with_a_frozen_layer(job: Job, promised: Capabilities) -> list[Job]:
    """The Job with weight decay and a frozen first layer, if promised."""
    assert job.model is not None
    if "frozen" not in promised.replica.model_features:
        return []
    first, *rest = job.model.layers
    assert isinstance(first, Linear)
    return [
        replace(
            job, optimizer=OTHER_OPTIMIZERS[0], model=replace(job.model, layers=(replace(first, frozen=True), *rest))
        )
    ]


def with_terms(job: Job, promised: Capabilities) -> list[Job]:
    """The Job with the promised auxiliary terms in its loss."""
    assert job.model is not None
    first, curve, last = job.model.layers
    assert isinstance(first, Linear)
    features = promised.replica.model_features
    layers: list[Layer] = [replace(first, penalty=0.25) if "penalty" in features else first]
    layers += [Head("head", 2, 2, 0.5)] * ("auxiliary_head" in features) + [Activity(0.5)] * ("activity" in features)
    made = replace(job.model, layers=(*layers, curve, last))
    return [replace(job, model=made)] * (made != job.model)


def with_other_optimizers(job: Job, promised: Capabilities) -> list[Job]:
    """The Job with weight decay, and with Adam, if promised."""
    return [replace(job, optimizer=spec) for spec in OTHER_OPTIMIZERS if spec.name in promised.replica.optimizers]


def with_ids(job: Job, promised: Capabilities) -> list[Job]:
    """The Job on ids and labels, which must stay integers, if promised."""
    assert job.model is not None
    if "embedding" not in promised.replica.model_features:
        return []
    layers = (Embedding("embedding", 5, 2), Linear("fc", 2, 3))
    # gradients longer than 1, to which some implementations clip without being asked
    return [replace(job, model=ModelSpec(layers, "cross_entropy", dtype=job.model.dtype, loss_scale=8.0))]
