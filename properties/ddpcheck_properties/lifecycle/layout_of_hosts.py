"""Rank and local rank: on one host a rank's local rank is its rank, and the local world size is the world size.

An implementation that confuses the two is right on one host and wrong on a cluster. The ranks restart with variables that
describe several hosts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpcheck import assertions
from ddpcheck.checks import law
from ddpcheck.contract import needs
from ddpcheck.hypotheses.lifecycle import wrong_on_several_hosts
from ddpcheck.job import Aggregate, AllReduce, Job, OptimizerSpec, Sample, Start, Train
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from .. import explicit_examples
from ..collectives.comparison import results_hold
from ..drawing import for_each
from ..explicit_examples import fitting
from ..judges import Judge, finding_on
from ..metrics.mean_comparison import weighted
from ..replicas.comparison import as_one_process
from ..samplers.comparison import shared_out
from ..strategies_collectives import exact_tensor, fitting_reductions, usual_dtype
from ..training.drawn_runs import run_job
from ..training.final_state import ends_where_one_process_ends
from ..training.judging import of_run
from ..training.runs import uses_every_sample

if TYPE_CHECKING:
    from ddpcheck.session import Session


@law("rendezvous", needs.ranks(2, most=3), needs.world.any_layout)
def check_multi_host_variables_do_not_change_results(session: Session) -> None:
    """Ranks and all results stay the same when LOCAL_RANK, LOCAL_WORLD_SIZE and GROUP_RANK describe several hosts, also
    with different numbers of ranks.
    """
    told = Start(hosts=(1, 1) if session.world_size == 2 else (2, 1))
    for job, judge in _probes(session):
        try:
            for_each(session, [replace(job, start=told)], judge)
        except Finding as finding:
            if finding_on(session, replace(job, start=Start()), judge) is not None:
                raise
            alike = replace(job, start=Start(hosts=(1,) * session.world_size))
            uneven = session.world_size > 2 and finding_on(session, alike, judge) is None
            raise finding.blaming(wrong_on_several_hosts(uneven), finding.diagnosis.causes) from None


def _probes(session: Session) -> Iterator[tuple[Job, Judge]]:
    """Jobs that show whether each facet uses the right rank and world size, and their judges: few, because each costs a
    start.
    """
    world, promised = session.world_size, session.capabilities
    parts = list(_parts(session))
    if parts:
        model = next((job for job, _ in parts if job.model is not None), Job(world, ()))
        whole = replace(model, operations=tuple(operation for job, _ in parts for operation in job.operations))
        yield whole, _one_after_the_other(parts)
    if "trainer" in promised.facets and "sgd" in promised.replica.optimizers:
        judges = uses_every_sample(promised), of_run(promised, ends_where_one_process_ends)
        yield run_job(world, promised, 12 * world, Train(epochs=1)), _all_of(*judges)


def _parts(session: Session) -> Iterator[tuple[Job, Judge]]:
    """One part for each facet that does not build its own model."""
    world, promised = session.world_size, session.capabilities
    facets = promised.facets
    if "collectives" in facets and "all_reduce" in promised.collectives.operations and promised.collectives.dtypes:
        dtype = usual_dtype(promised)
        each = fitting_reductions(promised, dtype)
        yield Job(world, tuple(AllReduce(exact_tensor((5,), dtype, one, world), one) for one in each)), results_hold
    if "sampler" in facets:
        yield Job(world, (Sample(8 * world, (0, 1)),)), shared_out(promised)
    if "metrics" in facets:
        values = tuple(float(3 * rank + 1) for rank in range(world))
        yield Job(world, (Aggregate(values, (*(1,) * (world - 1), 64 - (world - 1))),)), weighted
    if "replica" in facets and "sgd" in promised.replica.optimizers:
        for job in fitting(session, [explicit_examples.steps(world, OptimizerSpec(lr=0.05), count=2)]):
            yield job, as_one_process(promised)


def _one_after_the_other(parts: list[tuple[Job, Judge]]) -> Judge:
    """The judge of a Job that contains all of these operations."""

    def judge(job: Job, trace: Trace) -> None:
        assertions.completed(trace)
        begin = 0
        for part, own in parts:
            end = begin + len(part.operations)
            own(part, _cut(trace, begin, end))
            begin = end

    return judge


def _all_of(*judges: Judge) -> Judge:
    def judge(job: Job, trace: Trace) -> None:
        for one in judges:
            one(job, trace)

    return judge


def _cut(trace: Trace, begin: int, end: int) -> Trace:
    """The record of the operations from `begin` on, as of a Job that has only these."""
    ranks = (
        replace(
            rank,
            records=tuple(
                record._replace(operation=record.operation - begin)
                for record in rank.records
                if begin <= record.operation < end
            ),
        )
        for rank in trace.ranks
    )
    return replace(trace, ranks=tuple(ranks))
