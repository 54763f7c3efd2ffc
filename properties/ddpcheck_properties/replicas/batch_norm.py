"""Synchronised batch norm: the samples of all ranks are one batch, in statistics and in backward.

Batch norm divides by its statistics, and has no majorant (ddpcheck.oracle.network), so gradients are judged in
float64 with a tolerance of 2^-30 of the largest local gradient. It rests on these bounds, for the Jobs below: a gradient
goes through fewer than 2^8 roundings of 2^-53 each, and each of them may grow on its way by the product of the layers'
norms and of 1 / sqrt(variance + eps), which is below 2^13 (tests/test_batch_norm.py measures it). A wrong weight
of a rank changes gradients by more than 2^-10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ddpcheck import assertions
from ddpcheck.causes.cause import Given
from ddpcheck.checks import law
from ddpcheck.contract import Capabilities, needs
from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.evidence import evidence_of
from ddpcheck.hypotheses.ordered_hypotheses.replicas import (
    OF_A_BATCH_NORM_GRADIENT,
    OF_A_BATCH_NORM_LOSS,
    OF_BATCH_NORM_STATISTICS,
    OF_REMEASURING,
)
from ddpcheck.hypotheses.replicas.batch_norm import (
    WrongGradient,
    WrongLoss,
    WrongMeans,
    WrongRemeasuring,
    WrongStatistics,
    single_sample_refused,
)
from ddpcheck.job import Backward, DataSpec, Job, Observe, Operation, Remeasure, ZeroGrad
from ddpcheck.models.spec import Activation, BatchNorm, Layer, Linear, ModelSpec
from ddpcheck.oracle import ExpectedOperation, Oracle
from ddpcheck.trace import Trace
from ddpcheck.verdict import Diagnosis, Finding

from ..drawing import for_each
from ..explicit_examples import fitting
from ..judges import Judge, with_causes
from ..strategies import GRADIENTS, shards, training_job
from .comparison import as_one_process, compare, when

if TYPE_CHECKING:
    from ddpcheck.session import Session

TOLERANCE = 2.0**-30
CHAINS: tuple[tuple[Layer, ...], ...] = (
    (Linear("fc1", 3, 4), BatchNorm("norm", 4), Activation("tanh"), Linear("fc2", 4, 2)),
    (Linear("fc1", 3, 4), BatchNorm("norm1", 4), Activation("tanh"), Linear("fc2", 4, 3), BatchNorm("norm2", 3)),
)
"""Layers with one batch norm, and with two."""
NEEDS = needs.replica.model_features("batch_norm"), needs.replica.batch_norm("synchronised"), needs.ranks(2)


@law("replica_sync", *NEEDS)
def check_sync_batch_norm_running_statistics_cover_all_samples(session: Session) -> None:
    """After forward passes in training mode, running statistics on every rank are those of all ranks' samples together, each
    with equal weight. One sample per rank is enough.
    """
    layers = BatchNorm("norm", 3), Linear("fc1", 3, 2)
    uneven = session.capabilities.replica.uneven_batches != "refused"
    found = _batches(session.world_size, uneven=uneven, idle=uneven)
    jobs = [forwards(session.world_size, batches, layers, Observe(("buffers",))) for batches in found]
    for_each(session, fitting(session, jobs), _same_statistics(session.capabilities))


@law("replica_sync", *NEEDS, needs.replica.replica_dtypes("float64"), needs.replica.reduction_dtype("model"))
def check_sync_batch_norm_gradients_equal_the_large_batch(session: Session) -> None:
    """Losses and gradients equal those of one process that normalises over all ranks' samples, including gradients of layers
    before the batch norm. This holds for equal and unequal batches and for one sample per rank.
    """
    # otherwise the batches' weights have an effect, too
    uneven = session.capabilities.replica.uneven_batches == "equal_weight"
    jobs = gradient_jobs(session.world_size, uneven=uneven)
    for_each(session, fitting(session, jobs), _same_gradients(session.capabilities))


@law("replica_sync", needs.replica, needs.replica.model_features("batch_norm"), needs.replica.remeasures_statistics)
def check_remeasured_statistics_cover_all_samples(session: Session) -> None:
    """Remeasured running statistics are those of all ranks' samples, each with equal weight, on every rank. Remeasuring
    changes no counter or gradient, and the next forward pass in training mode updates statistics as usual.
    """
    jobs = []
    for batches in _batches(session.world_size, uneven=True):
        operations = Remeasure(shards(batches)), Observe(("buffers",)), Remeasure(shards(batches[::-1]))
        model = ModelSpec((BatchNorm("norm", 3), Linear("fc1", 3, 2)), dtype="float64")
        data = DataSpec(sum(batches), "real", 1)
        jobs.append(Job(session.world_size, (*operations, Observe(("buffers",))), model, data=data))
    jobs = [job for job in jobs if job.data is not None and job.data.samples > 1]  # one sample has no variance
    judge = with_causes(as_one_process(session.capabilities), _causes_of_remeasuring)
    for_each(session, fitting(session, jobs), judge)
    buffers, gradients = (_between_backwards(session.world_size, look) for look in (Observe(("buffers",)), *GRADIENTS))
    for_each(session, fitting(session, [buffers]), judge)
    for_each(session, fitting(session, [gradients]), as_one_process(session.capabilities, tolerance=TOLERANCE))


def _between_backwards(world_size: int, look: Operation) -> Job:
    """Statistics are remeasured between two backwards, with an observation after each."""
    first, anew, last = (shards([3] * world_size, 3 * number * world_size) for number in range(3))
    operations: list[Operation] = [ZeroGrad(), Backward(first), look, Remeasure(anew), look, Backward(last), look]
    model = ModelSpec((BatchNorm("norm", 3), Linear("fc1", 3, 2)), dtype="float64")
    job = training_job(world_size, model, operations, exact=False)
    assert job.data is not None
    return replace(job, data=replace(job.data, samples=9 * world_size))


def _causes_of_remeasuring(job: Job, trace: Trace, finding: Finding) -> Given:
    if not trace.completed:
        return None
    told = finding.diagnosis
    return first_cause(OF_REMEASURING, WrongRemeasuring(job, trace, told.subject[1], told.operation))


def gradient_jobs(world_size: int, *, uneven: bool) -> list[Job]:
    """A model with one batch norm, and one with two, on batches of all kinds."""
    found = _batches(world_size, uneven=uneven, idle=uneven)
    return [forwards(world_size, batches, layers, *GRADIENTS) for batches in found for layers in CHAINS]


def _batches(world_size: int, *, uneven: bool, idle: bool = False) -> list[list[int]]:
    """Batch sizes of all ranks. idle: also those in which rank 0 has no samples, but takes part in the sums over ranks,
    forward and backward.
    """
    found = [[3] * world_size, [1] * world_size]
    if uneven:
        found += [[3] + [1] * (world_size - 1), [1 + rank for rank in range(world_size)]]
    return [*found, [0] + [3] * (world_size - 1)] if idle else found


def forwards(world_size: int, batches: Sequence[int], layers: tuple[Layer, ...], *look: Operation) -> Job:
    """Two backwards, each followed by this observation."""
    operations: list[Operation] = []
    for number in range(2):
        operations += [ZeroGrad(), Backward(shards(batches, number * sum(batches))), *look]
    model = ModelSpec(layers, dtype="float64")
    return training_job(world_size, model, operations, exact=False, seed=2)


def _completed(job: Job, trace: Trace) -> None:
    """Every rank ran; if a rank refused one sample, the Finding says that one sample is enough."""
    try:
        assertions.completed(trace)
    except Finding as finding:
        raise finding.blaming(single_sample_refused(job, trace) or finding.diagnosis.causes) from None


def _expected(job: Job, promised: Capabilities, *, bounds: bool) -> tuple[ExpectedOperation, ...]:
    return tuple(Oracle(job, promised, bounds=bounds).walk())


def _same_statistics(promised: Capabilities) -> Judge:
    def judge(job: Job, trace: Trace) -> None:
        _completed(job, trace)
        alone = _expected(job, promised.but(batch_norm="local"), bounds=False)
        for moment, local in zip(_expected(job, promised, bounds=True), alone, strict=True):
            try:
                compare(moment, job, trace, bits=promised.world.equal_bits_on_ranks)
            except Finding as finding:
                mean, told = next(iter(local.arrays["buffers"])), finding.diagnosis
                own, right = (each.arrays["buffers"][mean].value.exact for each in (local, moment))
                got = [values[mean] for values in trace.values(moment.position, "buffers")]
                of = WrongStatistics(told.subject[1], mean, WrongMeans(got, own, right), told.causes)
                raise finding.blaming(first_cause(OF_BATCH_NORM_STATISTICS, of) or told.causes) from None

    return judge


def _same_gradients(promised: Capabilities) -> Judge:
    def judge(job: Job, trace: Trace) -> None:
        _completed(job, trace)
        moments = _expected(job, promised, bounds=False)
        alone = _expected(job, promised.but(batch_norm="local"), bounds=False)
        for moment, local in zip(moments, alone, strict=True):
            if isinstance(moment.operation, Backward):
                _compare_losses(moment, local, job, trace)
            elif moment.arrays:
                _compare_gradients(moment, job, trace)

    return judge


def _compare_losses(moment: ExpectedOperation, local: ExpectedOperation, job: Job, trace: Trace) -> None:
    exact, own = moment.numbers["loss"].exact, local.numbers["loss"].exact
    for rank, loss in enumerate(trace.values(moment.position, "loss")):
        try:
            bound = np.asarray(TOLERANCE * abs(exact).max())
            assertions.within(np.float64(loss), exact[rank], bound, f"loss ({when(job, moment.position)})", rank)
        except Finding as finding:
            of = WrongLoss(rank, loss, own[rank])
            raise finding.blaming(first_cause(OF_A_BATCH_NORM_LOSS, of)) from None


def _compare_gradients(moment: ExpectedOperation, job: Job, trace: Trace) -> None:
    entries = moment.arrays["gradients"]
    largest = max(float(abs(entry.value.exact).max()) for entry in entries.values())
    for name in reversed(list(entries)):
        entry = entries[name]
        for rank, seen in enumerate(trace.values(moment.position, "gradients")):
            got = seen[name]
            text = f"gradient of {name} ({when(job, moment.position)})"
            if got is None:
                raise Finding(Diagnosis(f"{text} on rank {rank}: got none, but should be an array"))
            exact = entry.value.exact[rank]
            try:
                assertions.within(
                    got, exact, np.full_like(exact, TOLERANCE * largest), text, rank, evidence_of(entry, rank)
                )
            except Finding as finding:
                of = WrongGradient(name, got, exact, job.world_size)
                raise finding.blaming(first_cause(OF_A_BATCH_NORM_GRADIENT, of)) from None
