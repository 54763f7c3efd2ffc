"""Gradients that ranks compare locally: tensors larger than any bucket, and options at the limits of their range."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpcheck import assertions
from ddpcheck.causes import gradients as causes
from ddpcheck.causes.cause import Given
from ddpcheck.checks import law
from ddpcheck.contract import Capabilities, needs
from ddpcheck.contract.needs import Need
from ddpcheck.counted_nouns import ranks_named
from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.ordered_hypotheses.replicas import OF_A_PART_OF_A_GRADIENT
from ddpcheck.hypotheses.replicas.large_tensors import WrongElements
from ddpcheck.job import Job, ProbeGradients
from ddpcheck.trace import Trace
from ddpcheck.verdict import Diagnosis, Finding

from ..drawing import for_each
from ..judges import with_causes

if TYPE_CHECKING:
    from ddpcheck.session import Session

PAST_25_MIB, PAST_50_MIB = 6_600_007, 13_200_007
"""Elements of float32, numbers without small divisors. Usual buckets have at most 25 MiB, so these fill more than one,
and more than two.
"""
SCALARS = 8
ELEMENTS = 1009
PAST_EXACT_SUMS = 5003
"""Elements; the weights are zeros, and so are the gradients of scalars."""
PAST_FLOAT16 = 6144
"""Three times a power of two: 8 times as much is 49,152, and any mean of two such gradients has few digits."""
EDGES = (0.0, -1.0, 2.0**-40, 2.0**40, float("inf"), float("nan"))
SMALLER_THAN_A_TENSOR = (2.0**-10, 1.0, 300.0, 1000.0)
"""Bucket sizes in MiB, KiB, elements and bytes, several of which the ELEMENTS of float32 need."""


@law("buckets", needs.replica, needs.ranks(2, most=2))
def check_gradients_larger_than_a_bucket_are_exact(session: Session) -> None:
    """Gradients of tensors of 25 and of 50 MiB, more than one and two buckets of the usual size, equal those of the large batch
    in every element.
    """
    jobs = [Job(session.world_size, (probe_of(session.capabilities, size),)) for size in (PAST_25_MIB, PAST_50_MIB)]
    for_each(session, jobs, _exact)


def _float16(capabilities: Capabilities, world_size: int) -> str | None:
    """Gradients are float16, or are averaged in float16."""
    offered = capabilities.replica
    if not offered.offered:
        return "facet replica is not promised"
    has = "float16" in offered.replica_dtypes or offered.reduction_dtype == "float16"
    return None if has and offered.gradient == "mean" else "no mean of gradients in float16 is promised"


float16_means = Need(
    "replica.replica_dtypes=float16, or reduction_dtype=float16, and gradient=mean", _float16, "replica"
)


@law("gradients", needs.replica, float16_means, needs.ranks(2, most=2))
def check_float16_mean_fits_where_its_sum_does_not(session: Session) -> None:
    """The mean of float16 gradients is right if each local gradient and the mean fit float16, even if the ranks' sum does
    not.
    """
    promised = session.capabilities
    probe = replace(probe_of(promised, PAST_EXACT_SUMS), input=PAST_FLOAT16)
    if "float16" in promised.replica.replica_dtypes:
        probe = replace(probe, dtype="float16")
    for_each(session, [Job(session.world_size, (probe,))], with_causes(_exact, _overflow_first))


@law("buckets", needs.replica, needs.replica.numeric_options, needs.ranks(most=2))
def check_numeric_options_work_or_are_refused(session: Session) -> None:
    """With an option at zero, negative, tiny, huge, infinite or NaN, or as the size of a bucket smaller than a tensor, gradients
    are right, or make_replica() raises an error on every rank.
    """
    promised, world = session.capabilities, session.world_size
    jobs = [
        Job(world, (probe_of(promised, ELEMENTS, ((option, value),)),))
        for option in sorted(promised.replica.numeric_options)
        for value in EDGES + SMALLER_THAN_A_TENSOR
    ]
    for_each(session, jobs, _works_or_refused)


def probe_of(promised: Capabilities, elements: int, options: tuple[tuple[str, float], ...] = ()) -> ProbeGradients:
    offered = promised.replica
    return ProbeGradients(
        elements,
        "float32" if "float32" in offered.replica_dtypes else max(offered.replica_dtypes),
        "adam" if "sgd" not in offered.optimizers and "adam" in offered.optimizers else "sgd",
        # the gradients of scalars are numbers of many digits
        SCALARS if "scale" in offered.model_features and offered.reduction_dtype == "model" else 0,
        options,
        offered.gradient == "sum",
    )


def _overflow_first(job: Job, trace: Trace, finding: Finding) -> Given:
    return causes.FLOAT16_SUM_OVERFLOWS(), finding.diagnosis.causes


def _exact(job: Job, trace: Trace) -> None:
    assertions.completed(trace)
    for position, probe in enumerate(job.operations):
        assert isinstance(probe, ProbeGradients)
        for finding in _wrong(probe, position, trace):
            raise finding


def _wrong(probe: ProbeGradients, position: int, trace: Trace) -> Iterator[Finding]:
    for rank in trace.ranks:
        seen = rank.values(position)
        if seen["refused"]:
            continue
        if seen["wrong"]:
            of = WrongElements(probe, seen)
            headline = (
                f"gradient of a tensor of {probe.elements:,} elements on rank {rank.rank}: {seen['wrong']:,} elements are "
                f"wrong, first {seen['first']:,}, last {seen['last']:,}"
            )
            yield Finding(Diagnosis(headline, first_cause(OF_A_PART_OF_A_GRADIENT, of)))
        for number, got in enumerate(seen["scalars"]):
            if got != seen["right_scalar"] and probe.elements == ELEMENTS:  # a large sum is rounded
                headline = (
                    f"gradient of scalar {number} on rank {rank.rank}: got {got}, but should be {seen['right_scalar']}"
                )
                yield Finding(Diagnosis(headline))


def _works_or_refused(job: Job, trace: Trace) -> None:
    (probe,) = job.operations
    assert isinstance(probe, ProbeGradients)
    ((option, value),) = probe.options
    broken = causes.OPTION_VALUE_BREAKS(option=option, value=value)
    refused = tuple(rank.rank for rank in trace.ranks if rank.outcome == "done" and rank.values(0)["refused"])
    assertions.that(
        len(refused) in (0, len(trace.ranks)),
        f"make_replica({option}={value:g}) raised on {ranks_named(refused)} only, but should on every rank or none",
        causes.OPTION_REFUSED_BY_SOME(option=option, value=value, ranks=refused),
    )
    try:
        assertions.completed(trace)
    except Finding as finding:
        raise finding.blaming(broken, *finding.diagnosis.causes) from None
    for wrong in _wrong(probe, 0, trace):
        raise wrong.blaming(broken, *wrong.diagnosis.causes)
