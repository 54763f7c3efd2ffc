"""A whole training run by the implementation's own loop: where does it end, and what did it see on the way?

The run tells which samples each rank used, in their order. That makes it a Job of ordinary steps, which the oracle can
walk: the same batches, one after the other, in one process.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from ddpcheck import expect
from ddpcheck.capabilities import Capabilities
from ddpcheck.checks import law
from ddpcheck.job import Backward, Clip, DataSpec, Job, Observe, Operation, OptimizerSpec, Step, Train, ZeroGrad
from ddpcheck.model import Activation, Linear, ModelSpec
from ddpcheck.numerics import gamma
from ddpcheck.oracle import Oracle
from ddpcheck.session import Session
from ddpcheck.trace import Trace

from .comparison import compare_arrays
from .drawing import Judge, for_all


@law("trainer", "facet:trainer", "optimizer:sgd")
def check_training_run_uses_every_sample(session: Session) -> None:
    """In each epoch of a training run the ranks together use every sample, and with shuffling the order changes."""
    world = session.world_size
    promised = session.capabilities
    # 2 epochs of 24 samples and more in the same order by chance: less than 1 in 24!, far below 1e-9
    long = st.builds(
        lambda n, seed: _job(world, promised, n, Train(seed=seed)), st.integers(24, 30), st.integers(0, 99)
    )
    for_all(session, long, _uses_every_sample(promised), share=0.3)


@law("trainer", "facet:trainer", "optimizer:sgd")
def check_training_run_ends_where_one_process_ends(session: Session) -> None:
    """Parameters after a training run are those of one process on the same batches, with the same bits on all ranks."""
    promised = session.capabilities
    for_all(session, runs(session.world_size, promised), _ends_where_one_process_ends(promised))


@law("trainer", "facet:trainer", "optimizer:sgd")
def check_training_run_tells_the_loss_of_all_samples(session: Session) -> None:
    """The loss of each epoch is the mean over the samples of all ranks, weighted by their numbers, on all ranks."""
    promised = session.capabilities
    for_all(session, runs(session.world_size, promised), _tells_the_loss(promised), share=0.5)


@st.composite
def _runs(draw: DrawFn, world_size: int, promised: Capabilities) -> Job:
    samples = draw(st.integers(2 * world_size, 5 * world_size))
    plan = Train(
        epochs=draw(st.integers(1, 3)),
        batch_size=draw(st.sampled_from((2, 1, 3))),
        shuffle=draw(st.booleans()),
        seed=draw(st.integers(0, 99)),
        max_norm=draw(st.sampled_from((None, 0.5))) if promised.clipping else None,
    )
    momentum = draw(st.sampled_from((0.0, 0.5)))
    job = _job(world_size, promised, samples, plan, seed=draw(st.integers(0, 99)))
    return replace(job, optimizer=OptimizerSpec("sgd", 0.125, momentum))


def runs(world_size: int, promised: Capabilities) -> SearchStrategy[Job]:
    """Jobs of one short training run each."""
    return _runs(world_size, promised)


def _job(world_size: int, promised: Capabilities, samples: int, plan: Train, seed: int = 0) -> Job:
    dtype = "float64" if "float64" in promised.replica_dtypes else "float32"
    layers = (Linear("fc1", 3, 2), Activation("tanh"), Linear("fc2", 2, 2))
    model = ModelSpec(layers, "squared_error", dtype=dtype)
    return Job(world_size, (plan,), model, OptimizerSpec("sgd", 0.125), DataSpec(samples, "real", seed), seed)


def _uses_every_sample(promised: Capabilities) -> Judge:
    def judge(job: Job, trace: Trace) -> None:
        expect.completed(trace)
        assert job.data is not None
        epochs = [np.concatenate(ranks) for ranks in zip(*trace.values(0, "indices"), strict=True)]
        for number, used in enumerate(epochs):
            left = sorted(set(range(job.data.samples)) - set(used.tolist()))
            allowed = job.data.samples % job.world_size if promised.remainder == "drop" else 0
            expect.that(
                len(left) <= allowed,
                f"epoch {number}: got {len(left)} of {job.data.samples} samples that no rank used, the first {left[:3]}, "
                "but should be none",
                "the shards of the ranks overlap, or the tail is lost",
            )
            most = job.world_size - 1 if promised.remainder == "pad" else 0
            expect.that(
                len(used) <= job.data.samples + most,
                f"epoch {number}: the ranks together used {len(used)} samples, but should use {job.data.samples}",
                "the samples are not shared out between the ranks",
            )
        orders = {used.tobytes() for used in epochs}
        expect.that(
            not promised.shuffles or len(orders) == len(epochs),
            "two epochs of a shuffled run used the samples in the same order on all ranks, but should differ",
            "the epoch number does not reach the sampler (set_epoch)",
        )

    return judge


def _ends_where_one_process_ends(promised: Capabilities) -> Judge:
    def judge(job: Job, trace: Trace) -> None:
        expect.completed(trace)
        *_, last = Oracle(_step_by_step(job, trace), promised, bounds=True).walk()
        entries = last.arrays["parameters"]
        bits = promised.same_bits_on_all_ranks
        compare_arrays(trace.values(0, "parameters"), entries, "parameters", "after the training run", bits=bits)

    return judge


def _tells_the_loss(promised: Capabilities) -> Judge:
    def judge(job: Job, trace: Trace) -> None:
        expect.completed(trace)
        plan = _plan(job)
        steps = _step_by_step(job, trace)
        moments = [m for m in Oracle(steps, promised, bounds=True).walk() if isinstance(m.operation, Backward)]
        told = trace.values(0, "losses")
        each = len(moments) // plan.epochs
        assert job.model is not None
        for epoch in range(plan.epochs):
            total = allowed = count = 0.0
            for moment in moments[epoch * each : (epoch + 1) * each]:
                assert isinstance(moment.operation, Backward)
                counts = np.array([len(rank) for rank in moment.operation.samples])
                loss = moment.numbers["loss"]
                total += float(loss.exact @ counts)
                allowed += float((np.zeros(job.world_size) if loss.error is None else loss.error) @ counts)
                count += float(counts.sum())
            mean = np.asarray(total / count)
            bound = np.asarray(allowed / count + abs(mean) * gamma(2 * each * job.world_size + 8, job.model.dtype))
            for rank, losses in enumerate(told):
                expect.within(np.float64(losses[epoch]), mean, bound, f"loss of epoch {epoch}", rank)

    return judge


def _plan(job: Job) -> Train:
    (plan,) = job.operations
    assert isinstance(plan, Train)
    return plan


def _step_by_step(job: Job, trace: Trace) -> Job:
    """The same run as a Job of single steps, on the samples that each rank said it used."""
    plan = _plan(job)
    operations: list[Operation] = []
    for ranks in zip(*trace.values(0, "indices"), strict=True):
        size = plan.batch_size
        cut = [[tuple(r[i : i + size].tolist()) for i in range(0, len(r), size)] for r in ranks]
        for shards in zip_longest(*cut, fillvalue=()):
            operations += [ZeroGrad(), Backward(shards)]
            operations += [Clip(plan.max_norm)] if plan.max_norm is not None else []
            operations.append(Step())
    return replace(job, operations=(*operations, Observe(("parameters",))))
