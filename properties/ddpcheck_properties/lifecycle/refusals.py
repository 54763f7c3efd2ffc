"""Promised refusals are errors on every rank. Each of these Jobs ends its ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddpcheck import assertions
from ddpcheck.causes import lifecycle as causes
from ddpcheck.checks import law
from ddpcheck.contract import needs
from ddpcheck.counted_nouns import ranks_named
from ddpcheck.job import Backward, DataSpec, Job, MeasureSteps, Sample
from ddpcheck.models.spec import Linear, ModelSpec
from ddpcheck.trace import Trace
from ddpcheck.verdict import Diagnosis, Finding

from .. import explicit_examples
from ..drawing import for_each
from ..explicit_examples import fitting
from ..judges import Judge
from ..samplers import comparison

if TYPE_CHECKING:
    from ddpcheck.session import Session

UNKNOWN = "an_option_that_nobody_has"


@law("gradients", needs.replica, needs.ranks(2), needs.replica.uneven_batches("refused"))
def check_uneven_batches_raise_on_every_rank(session: Session) -> None:
    """When batch sizes differ between ranks, backward raises on every rank, and no rank is left waiting."""
    world = session.world_size
    # a Job that raises costs new ranks; at each world size another rank has the most samples, and with four ranks two
    # neighbours have the average number
    batches = [1] * (world - 1) + [4] if world % 2 else [3, *[2] * (world - 2), 1]
    job = explicit_examples.uneven(world, batches=batches if world > 2 else ())
    for_each(session, [replace(job, operations=job.operations[:2])], _refused)


@law("sampler", needs.sampler, needs.sampler.few_samples("refused"))
def check_too_few_samples_raise_on_every_rank_or_none(session: Session) -> None:
    """With fewer samples than ranks, either every rank raises an error, or all samples are distributed. No rank continues
    alone.
    """
    world = session.world_size
    for_each(
        session, [Job(world, (Sample(length, (0,)),)) for length in {0, world - 1}], _refused_or_shared_out(session)
    )


def _refused_or_shared_out(session: Session) -> Judge:
    shared_out = comparison.shared_out(session.capabilities)

    def judge(job: Job, trace: Trace) -> None:
        others = [rank for rank in range(job.world_size) if rank not in trace.raised]
        if not trace.raised:
            shared_out(job, trace)
        elif others:
            (read,) = job.operations
            assert isinstance(read, Sample)
            raise Finding(
                Diagnosis(
                    f"{comparison.named(read)}: {ranks_named(trace.raised)} raised, but {ranks_named(others)} should have, too",
                    (causes.FEW_SAMPLES_REFUSED_BY_SOME(),),
                    details=(next(rank.error for rank in trace.ranks if rank.error),),
                )
            )

    return judge


@law(
    "unused",
    needs.replica,
    needs.replica.model_features("branch"),
    needs.ranks(most=3),
    needs.replica.unused_parameters("raises"),
)
def check_unused_parameters_raise(session: Session) -> None:
    """A rank on which a parameter had no gradient raises an error by the next backward at the latest. No rank continues.

    A rank that used every parameter may wait for ranks that raised. With two ranks, one uses all parameters; with more, none
    does, because seeing that a rank waits takes seconds.
    """
    world = session.world_size
    # a Job that raises costs new ranks, which takes seconds with some implementations: one is enough
    taken = ("a", "") if world == 2 else ("",)
    for_each(session, fitting(session, [explicit_examples.branches(world, "a", taken, taken)]), _raised)


@law("replica_sync", needs.replica, needs.replica.refuses_options, needs.ranks(most=1))
def check_make_replica_rejects_unknown_options(session: Session) -> None:
    """make_replica() raises a ValueError for an unknown option, so a misspelt option is noticed."""
    step = MeasureSteps(((0,),), warmups=0, iterations=1, options=((UNKNOWN, 1.0),))
    job = Job(session.world_size, (step,), ModelSpec((Linear("fc1", 2, 2),)), data=DataSpec(1))
    for_each(session, fitting(session, [job]), _option_refused)


def _option_refused(_: Job, trace: Trace) -> None:
    for rank in trace.ranks:
        assertions.that(
            rank.outcome == "raised" and "ValueError" in rank.error,
            f"rank {rank.rank}: a replica with the option {UNKNOWN} {rank.outcome}, but should have raised a ValueError",
            causes.UNKNOWN_OPTION_ACCEPTED(),
        )


def _raised(job: Job, trace: Trace) -> None:
    assert job.model is not None
    everything = set(job.model.branches)
    first = next(operation for operation in job.operations if isinstance(operation, Backward))
    for rank in trace.ranks:
        complete = set(first.branches_on(rank.rank)) == everything
        if rank.outcome == "raised" or (complete and trace.raised and rank.outcome == "hung"):
            continue
        others = ", ".join(f"rank {other.rank} {other.outcome}" for other in trace.ranks)
        headline = f"rank {rank.rank} {rank.outcome}, but should have raised: a parameter had no gradient ({others})"
        raise Finding(
            Diagnosis(headline, (causes.UNUSED_PARAMETER_NOT_REFUSED(),)),
            hung=rank.outcome == "hung",
        )


def _refused(job: Job, trace: Trace) -> None:
    for rank in trace.ranks:
        what = f"{len(job.operations)} operations with uneven batches"
        assertions.equal(rank.outcome, "raised", what, rank.rank, causes.UNEVEN_BATCHES_NOT_REFUSED())
