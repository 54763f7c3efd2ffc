"""Evidence in, causes out: failed Jobs of collectives in special circumstances, equal calls, and metrics with names or NaN."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ddpcheck.causes import Cause, Kind, collectives, metrics, values
from ddpcheck.hypotheses.causes_of_wrong_numbers import causes_of_means, causes_of_names
from ddpcheck.hypotheses.choose_causes import all_causes, first_cause
from ddpcheck.hypotheses.collectives.calls import WrongCalls, call_counter_wraps
from ddpcheck.hypotheses.collectives.circumstances import (
    EarlyBarrier,
    ExplainedResult,
    FailedJob,
    argument_must_be_writable,
    copy_reduced,
    handle_forgotten,
    late_rank_missed,
    path_by_content,
    shortened_by_content,
)
from ddpcheck.hypotheses.collectives.evidence import WrongResult
from ddpcheck.hypotheses.collectives.reductions import of_tiny_values, overflowed
from ddpcheck.hypotheses.metrics.evidence import WrongMean
from ddpcheck.hypotheses.metrics.names import OtherNames
from ddpcheck.hypotheses.metrics.nonfinite import LostNonfinite, WrongBesideNan
from ddpcheck.hypotheses.ordered_hypotheses.collectives import (
    OF_AN_EARLY_BARRIER,
    OF_AN_EXPLAINED_RESULT,
    OF_EQUAL_CALLS,
)
from ddpcheck.hypotheses.ordered_hypotheses.metrics import OF_LOST_NONFINITE, OF_METRICS_BESIDE_NAN
from ddpcheck.job import Aggregate, AllReduce, Job, Operation, Sleep, TensorSpec
from ddpcheck.trace import RankTrace, Trace

DONE = Trace((RankTrace(0, "done", ()), RankTrace(1, "done", ())))
RESULTS = np.arange(1.0, 7.0)[:, None] * np.array([2.0, 3.0])
OWN = np.arange(1.0, 7.0)
LATE = Sleep(1, 2.0)
REDUCED = AllReduce(TensorSpec((3,), "float32"), "mean")


def raised(error: str) -> Trace:
    return Trace((RankTrace(0, "raised", (), error), RankTrace(1, "done", ())))


def failed(*operations: Operation, trace: Trace = DONE, sure: tuple[Cause, ...] = (), operation: int = -1) -> FailedJob:
    return FailedJob(Job(2, operations or (REDUCED,)), trace, sure, operation)


def ids(causes: tuple[Cause, ...]) -> list[str]:
    return [cause.id for cause in causes]


def explained(sure: Cause, call: AllReduce = REDUCED, got: Any = RESULTS[:3, 0]) -> list[str]:
    """The causes of a wrong result on rank 0 of two."""
    of = ExplainedResult(WrongResult(Job(2, (call,)), call, 0, (0, 1)), got, (sure,))
    return ids(first_cause(OF_AN_EXPLAINED_RESULT, of))


def test_late_rank_comes_before_causes_that_follow_from_it() -> None:
    def told(*sure: Cause) -> list[str]:
        return ids(late_rank_missed(failed(LATE, REDUCED, sure=sure, operation=1), 0.5))

    assert told() == [collectives.LATE_RANK_MISSED.id]
    assert told(values.ZERO()) == [collectives.LATE_RANK_MISSED.id, values.ZERO.id]
    assert told(collectives.OTHER_RESULT()) == [collectives.OTHER_RESULT.id, collectives.LATE_RANK_MISSED.id]
    (straggler,) = late_rank_missed(failed(Sleep(1, 0.5), Sleep(1, 0.5), REDUCED, operation=2), 0.5)
    assert straggler.get("seconds") == 1.0
    far = failed(LATE, REDUCED, REDUCED, REDUCED, REDUCED, sure=(values.ZERO(),), operation=4)
    assert late_rank_missed(far, 0.5) == (values.ZERO(),)


def test_results_without_reduction_are_explained_by_the_call_form() -> None:
    assert copy_reduced((values.NOT_REDUCED(),)) == collectives.COPY_REDUCED()
    assert copy_reduced((values.ZERO(),)) is None
    started = replace(REDUCED, wait=False)
    assert explained(values.NOT_REDUCED(), started) == ["wait-returns-early", values.NOT_REDUCED.id]
    assert explained(values.NOT_REDUCED()) == [values.NOT_REDUCED.id]
    assert explained(values.ZERO(), started) == [values.ZERO.id]


def test_wrong_products_may_come_from_logarithms() -> None:
    product = AllReduce(REDUCED.tensor, "prod")
    negative = (np.stack([product.tensor.on(rank) for rank in range(2)]) < 0).any(axis=0)
    assert explained(values.NONFINITE(), product, np.where(negative, np.nan, 1.0)) == [
        collectives.PRODUCT_BY_LOGARITHMS.id
    ]
    rounded = values.LAST_BITS_WRONG(count=1, size=3, ulp=1)
    assert explained(rounded, product) == [rounded.id, collectives.PRODUCT_BY_LOGARITHMS.id]
    assert explained(rounded) == [rounded.id]


def test_content_explains_shortened_results_and_ranks_that_fail() -> None:
    patchy = AllReduce(TensorSpec((3,), "float32", "patchy"), "mean")
    tried = (path_by_content, shortened_by_content)
    assert ids(all_causes(tried, failed(patchy))) == [collectives.SHORTENED_BY_CONTENT.id]
    for operation, certainty in ((patchy, "likely"), (REDUCED, "possible")):
        (cause,) = all_causes(tried, failed(operation, trace=raised("ValueError: no")))
        assert (cause.id, cause.certainty) == (collectives.PATH_BY_CONTENT.id, certainty)


@pytest.mark.parametrize(("error", "told"), [("ValueError: array is read-only", True), ("ValueError: no", False)])
def test_errors_about_writing_blame_the_read_only_argument(error: str, *, told: bool) -> None:
    assert (argument_must_be_writable(failed(trace=raised(error))) is not None) == told


def test_last_wait_of_many_may_have_lost_its_handle() -> None:
    operations = (REDUCED,) * 6
    assert handle_forgotten(failed(*operations, operation=4)) is None
    assert handle_forgotten(failed(*operations, operation=5)) == collectives.HANDLE_FORGOTTEN(others=2)


def test_barrier_may_give_up_after_long() -> None:
    assert len(all_causes(OF_AN_EARLY_BARRIER, EarlyBarrier(2, 1, 2.0))) == 2
    assert ids(all_causes(OF_AN_EARLY_BARRIER, EarlyBarrier(2, 1, 0.1))) == [collectives.BARRIER_DOES_NOT_BLOCK.id]


def test_barrier_may_wait_for_some_ranks_only() -> None:
    (told,) = all_causes(OF_AN_EARLY_BARRIER, EarlyBarrier(2, 1, 0.1, awaited=(0,)))
    assert told == collectives.BARRIER_WAITS_FOR_SOME(ranks=(0,), late=1, rank=2)
    again = EarlyBarrier(2, 1, 0.1, awaited=(0, 1))
    assert ids(all_causes(OF_AN_EARLY_BARRIER, again)) == [collectives.BARRIER_DOES_NOT_BLOCK.id]


def test_overflow_depends_on_the_reduction() -> None:
    got, want = np.array([1.0, np.inf]), np.array([1.0, 2.0])
    assert overflowed(REDUCED, got, want) == collectives.OVERFLOWS_BEFORE_DIVISION()
    assert overflowed(AllReduce(REDUCED.tensor, "sum"), got, want) == collectives.OVERFLOWS_ON_THE_WAY()
    assert overflowed(REDUCED, want, want) is None


def test_tiny_values_are_divided_first_only_in_a_mean() -> None:
    parts = np.array([[1.0], [2.0]])
    known = {cause.id: array.tolist() for cause, array in of_tiny_values(parts, 2)}
    assert known == {collectives.TINY_DIVIDED_FIRST.id: [1.0], collectives.SUBNORMALS_FLUSHED.id: [0.0]}
    assert [cause.id for cause, _ in of_tiny_values(parts, 1)] == [collectives.SUBNORMALS_FLUSHED.id]


@pytest.mark.parametrize(
    ("rows", "cause"),
    [
        (lambda got: np.broadcast_to(got[0], (3, 2)), collectives.FIRST_RESULT_AGAIN),
        (lambda got: got[1:4], collectives.EARLIER_RESULT),
        (lambda got: np.repeat(OWN[3:, None], 2, axis=1), values.NOT_REDUCED),
        (lambda got: np.zeros((3, 2)), values.ZERO),
        (lambda got: np.full((3, 2), 99.0), collectives.OTHER_RESULT),
    ],
)
def test_wrong_result_of_equal_calls_is_explained(rows: Callable[[Any], Any], cause: Kind) -> None:
    got = RESULTS.copy()
    got[3:] = rows(RESULTS)
    of = WrongCalls(got, RESULTS, OWN, np.array([3, 4, 5]))
    assert cause.explains(first_cause(OF_EQUAL_CALLS, of))
    assert call_counter_wraps(of) == collectives.CALL_COUNTER_WRAPS(calls=3)


MADE = Aggregate((1.0, 3.0), (1, 1), ("train_loss", "train_acc"))
WANTED = {"train_loss": 2.0, "train_acc": 4.0}


@pytest.mark.parametrize(
    ("got", "cause"),
    [
        ({"train_loss": 2.0, "train_acc": 4.0, "more": 1.0}, "earlier-names-returned"),
        ({"loss": 2.0, "acc": 4.0}, "name-prefix-cut"),
        ({"first": 1.0, "second": 2.0}, "names-of-earlier-call"),
        ({"train_loss": 4.0, "train_acc": 2.0}, "names-unpacked-in-other-order"),
        ({"train_loss": 2.0}, "names-missing"),
        ({"train_loss": 1.0, "train_acc": 2.0}, "named-metric-not-aggregated"),
        ({"train_loss": 2.0, "train_acc": 8.0}, "rule-by-name"),
        ({"train_loss": 2.0, "train_acc": 1.0}, "capped-by-name"),
        ({"train_loss": 4.0, "train_acc": 4.0}, "rule-by-name"),
        ({"train_loss": 2.0, "train_acc": 9.9}, "metrics-mixed-up"),
    ],
)
def test_wrong_named_metrics_are_explained(got: dict[str, float], cause: str) -> None:
    wrong = {name: value for name, value in WANTED.items() if got.get(name) != value}
    earlier = [Aggregate((1.0, 1.0), (1, 1), ("first", "second"))]
    assert ids(causes_of_names(OtherNames(MADE, WANTED, wrong, got, MADE.given(0), earlier, 0))) == [cause]


def test_nonfinite_values_that_are_lost_are_named() -> None:
    opposite = LostNonfinite(Aggregate((math.inf, -math.inf), (1, 1)), math.nan)
    assert ids(first_cause(OF_LOST_NONFINITE, opposite)) == [metrics.OPPOSITE_INFINITIES.id]
    (lost,) = first_cause(OF_LOST_NONFINITE, LostNonfinite(Aggregate((-math.inf, 1.0), (1, 1)), -math.inf))
    assert lost.get("value") == "-infinity"


@pytest.mark.parametrize(
    ("got", "cause"),
    [
        (math.nan, metrics.NAN_SPREADS),
        (2.0, metrics.RANK_LEFT_OUT_FOR_NAN),
        (8.0, metrics.MEAN_TIMES_WORLD_SIZE),
        (7.0, metrics.METRICS_MIXED_UP),
    ],
)
def test_metric_beside_nan_is_explained(got: float, cause: Kind) -> None:
    made = Aggregate((1.0, 3.0), (1, 1), ("train_loss", "train_acc"), no_number=(1, "train_loss"))
    of = WrongBesideNan(made, {"train_acc": got}, "train_acc")
    assert cause.explains(first_cause(OF_METRICS_BESIDE_NAN, of))


def test_causes_of_all_ranks_come_first() -> None:
    made = Aggregate((1.0, 3.0), (1, 3))
    told = causes_of_means([WrongMean(made, got, rank) for rank, got in enumerate((2.0, 2.0))])
    assert all(metrics.MEAN_OF_RANK_MEANS.explains(causes) for causes in told.values())
    assert causes_of_means([]) == {}
