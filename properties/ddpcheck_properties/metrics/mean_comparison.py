"""Aggregated metrics against the expected means, with the causes of wrong ones.

Sums, shares and running means all keep numbers below twice the largest mean, and each rank adds at most four roundings. So
results are off by at most gamma_(8 W) times that mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ddpcheck import assertions
from ddpcheck.causes import metrics as causes
from ddpcheck.causes.collectives import LATE_RANK_MISSED
from ddpcheck.hypotheses.causes_of_wrong_numbers import causes_of_means, causes_of_names
from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.metrics.evidence import WrongMean
from ddpcheck.hypotheses.metrics.names import OtherNames
from ddpcheck.hypotheses.metrics.nonfinite import LostNonfinite, WrongBesideNan
from ddpcheck.hypotheses.ordered_hypotheses.metrics import OF_LOST_NONFINITE, OF_METRICS_BESIDE_NAN
from ddpcheck.job import Aggregate, Job, Operation, Sleep
from ddpcheck.numerics import gamma
from ddpcheck.oracle.means import mean_of
from ddpcheck.trace import Trace
from ddpcheck.verdict import Diagnosis, Finding


def weighted(job: Job, trace: Trace) -> None:
    assertions.completed(trace)
    for position, made in enumerate(job.operations):
        assert isinstance(made, Aggregate)
        _compare(made, position, trace, job.operations[:position])


def though_late(job: Job, trace: Trace) -> None:
    """As weighted(), after a Sleep of one rank, which is the first cause of a wrong mean."""
    assertions.completed(trace)
    late, *calls = job.operations
    assert isinstance(late, Sleep)
    for position, made in enumerate(calls, start=1):
        assert isinstance(made, Aggregate)
        try:
            _compare(made, position, trace)
        except Finding as finding:
            missed = LATE_RANK_MISSED(rank=late.rank, seconds=late.seconds)
            raise finding.blaming(missed, finding.diagnosis.causes) from None


def by_name(job: Job, trace: Trace) -> None:
    assertions.completed(trace)
    for position, made in enumerate(job.operations):
        assert isinstance(made, Aggregate)
        wanted = {name: (place + 1) * mean_of([made]) for place, name in enumerate(made.names)}
        earlier = [each for each in job.operations[:position] if isinstance(each, Aggregate)]
        for rank, values in enumerate(record.values(position) for record in trace.ranks):
            got, own = values["metrics"], made.given(rank)
            close = _as(wanted, got, made)
            wrong = {name: value for name, value in wanted.items() if close.get(name) != value}
            seen = {name: value for name, value in close.items() if wanted.get(name) != value}
            cause = causes_of_names(OtherNames(made, wanted, wrong, got, own, earlier, rank))
            assertions.equal(seen, wrong, f"{len(wanted)} metrics, {_named(made)}: those wrong", rank, cause)
            assertions.that(
                not values["argument_changed"],
                f"the mapping of metrics that rank {rank} passed was changed, but should stay as it was",
                causes.METRICS_WRITTEN_INTO_ARGUMENT(),
            )
            assertions.that(
                not values["earlier_changed"],
                f"an earlier call's result on rank {rank} was changed by {_named(made)}, but should stay as it was",
                causes.RESULT_MAPPING_REUSED(),
            )


def nothing_or_weighted(job: Job, trace: Trace) -> None:
    assertions.completed(trace)
    for rank, metrics in enumerate(trace.values(0, "metrics")):
        if not all(math.isnan(value) for value in metrics.values()):
            raise Finding(
                Diagnosis(
                    f"metric over no samples on rank {rank}: got {metrics}, but should be an empty mapping or NaN",
                    (causes.NUMBER_WITHOUT_SAMPLES(),),
                )
            )
    made = job.operations[1]
    assert isinstance(made, Aggregate)
    _compare(made, 1, trace)


def stays_strange(job: Job, trace: Trace) -> None:
    assertions.completed(trace)
    (made,) = job.operations
    assert isinstance(made, Aggregate)
    strange = {value for value in made.values if not math.isfinite(value)}
    wanted = strange.pop() if len(strange) == 1 else math.nan
    for rank, metrics in enumerate(trace.values(0, "metrics")):
        got = metrics.get("metric", 0.0)
        assertions.that(
            got == wanted or math.isnan(got),
            f"{_named(made)}: metrics on rank {rank}: got {metrics}, but should be {wanted}",
            first_cause(OF_LOST_NONFINITE, LostNonfinite(made, wanted)),
        )


def stays_strange_alone(job: Job, trace: Trace) -> None:
    assertions.completed(trace)
    (made,) = job.operations
    assert isinstance(made, Aggregate)
    assert made.no_number is not None
    rank, strange = made.no_number
    wanted = {name: (place + 1) * mean_of([made]) for place, name in enumerate(made.names)}
    for number, metrics in enumerate(trace.values(0, "metrics")):
        what = f"{len(wanted)} metrics, of which rank {rank} has a NaN for {strange}: {{}} on rank {number}: got"
        got = metrics.get(strange, 0.0)
        assertions.that(
            math.isnan(got),
            f"{what.format(strange)} {got}, but should be NaN",
            causes.NAN_LEFT_OUT_BESIDE_OTHERS(),
        )
        close = _as(wanted, metrics, made)
        for name in wanted.keys() - {strange}:
            assertions.that(
                close.get(name) == wanted[name],
                f"{what.format(name)} {close.get(name)}, but should be {wanted[name]}",
                first_cause(OF_METRICS_BESIDE_NAN, WrongBesideNan(made, close, name)),
            )


def equal(job: Job, trace: Trace) -> None:
    assertions.completed(trace)
    for position, made in enumerate(job.operations):
        assert isinstance(made, Aggregate)
        first, *others = trace.values(position, "metrics")
        for rank, metrics in enumerate(others, start=1):
            cause = causes.RANKS_ADD_IN_OTHER_ORDER()
            assertions.equal(metrics, first, f"{_named(made)}: metrics, compared with rank 0,", rank, cause)


def _compare(made: Aggregate, position: int, trace: Trace, earlier: Sequence[Operation] = ()) -> None:
    before = tuple(each for each in earlier if isinstance(each, Aggregate))
    wanted = {"metric": mean_of([made])}
    found = [_as(wanted, metrics, made) for metrics in trace.values(position, "metrics")]
    wrong = [WrongMean(made, got.get("metric"), rank, before) for rank, got in enumerate(found) if got != wanted]
    likely = causes_of_means(wrong)
    for rank, got in enumerate(found):
        assertions.equal(got, wanted, f"{_named(made)}: metrics", rank, likely.get(rank))


def _as(wanted: Mapping[str, float], got: Mapping[str, float], made: Aggregate) -> dict[str, float]:
    """The results, with numbers within rounding replaced by the expected ones."""
    largest = max(abs(value) for value, count in zip(made.values, made.counts, strict=True) if count)
    allowed = gamma(8 * len(made.values), "float32") * largest
    bounds = {name: allowed * (place + 1) for place, name in enumerate(made.names)}
    return {
        name: wanted[name] if name in bounds and abs(value - wanted[name]) <= bounds[name] else value
        for name, value in got.items()
    }


def _named(made: Aggregate) -> str:
    return f"means {list(made.values)} over {list(made.counts)} samples"
