"""Evidence in, causes out: batch norm, skipped steps, and runs of replicas that check one circumstance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from oracle_jobs import PROMISED, moments

from ddpcheck.causes import Cause, Kind, batch_norm, operations, programs, replicas, updates, values
from ddpcheck.hypotheses.causes_of_observations import causes_in_job
from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.ordered_hypotheses.replicas import (
    OF_A_BATCH_NORM_GRADIENT,
    OF_A_BATCH_NORM_LOSS,
    OF_A_STEP_NOT_SKIPPED,
    OF_BATCH_NORM_STATISTICS,
    OF_BUFFERS_APART,
    OF_DIFFERENT_REPLICAS,
    OF_JOINED_PARAMETERS,
    OF_NONFINITE_GRADIENT,
    OF_REMEASURING,
)
from ddpcheck.hypotheses.programs import WrongInJob
from ddpcheck.hypotheses.replicas.batch_norm import (
    WrongGradient,
    WrongLoss,
    WrongMeans,
    WrongRemeasuring,
    WrongStatistics,
)
from ddpcheck.hypotheses.replicas.joining import AfterJoin
from ddpcheck.hypotheses.replicas.skipped_steps import NotSkipped, infinity_of_one_sign
from ddpcheck.hypotheses.replicas.special_runs import (
    DifferentReplicas,
    evaluation_changes_gradients,
    join_stopped_by_buffers,
    lost_micro_batches,
    lost_steps,
    other_initial_values,
    own_steps,
    parameter_not_reset,
    right_the_first_time,
)
from ddpcheck.job import Backward, DataSpec, Job, Join, Observe, Remeasure, ZeroGrad
from ddpcheck.models.spec import BatchNorm, Linear, ModelSpec
from ddpcheck.trace import RankTrace, Record, Trace
from ddpcheck_properties.replicas.joining import joining

OWN = np.array([[1.0, 2.0], [3.0, 6.0]])
RIGHT = np.array([2.5, 5.0])
ONE = np.array([2.0, 3.0])
UNKNOWN = (updates.STATISTICS_PUT_TOGETHER(),)


def means(*got: Any) -> WrongMeans:
    return WrongMeans([np.array(each) for each in got], OWN, RIGHT)


def statistics(buffer: str, of: WrongMeans, sure: tuple[Cause, ...] = UNKNOWN) -> WrongStatistics:
    return WrongStatistics(buffer, "norm.running_mean", of, sure)


def skipped(before: list[float], after: list[float], *gradients: float, average: float = 0.0) -> NotSkipped:
    """Two ranks, whose parameter is `before` and `after` the steps to skip, and their gradients later."""

    def look(rank: int, number: int) -> dict[str, Any]:
        moved = after if number == 2 else before
        shown = {"parameters": {"w": np.array(moved[rank])}, "averaged": {"w": np.array(average * (number == 2))}}
        return {"gradients": {"w": np.array(gradients[rank])}} if number == 3 else shown

    ranks = (
        RankTrace(rank, "done", tuple(Record(at, "observe", 0.0, 1.0, look(rank, at)) for at in range(4)))
        for rank in range(2)
    )
    layers = Linear("fc1", 1, 1), Linear("fc2", 1, 1), Linear("fc3", 1, 1)
    return NotSkipped(Job(2, (Observe(),) * 4, ModelSpec(layers)), Trace(tuple(ranks)))


@pytest.mark.parametrize(
    ("table", "evidence", "kind"),
    [
        (OF_BATCH_NORM_STATISTICS, statistics("norm.running_var", means(RIGHT, RIGHT)),
         batch_norm.VARIANCE_PUT_TOGETHER),
        (OF_BATCH_NORM_STATISTICS, statistics("norm.running_mean", means(*OWN)), batch_norm.OWN_BATCH),
        (OF_BATCH_NORM_STATISTICS, statistics("norm.running_mean", means([2.0, 4.0], [2.0, 4.0])),
         batch_norm.MEANS_WITHOUT_COUNTS),
        (OF_BATCH_NORM_STATISTICS, statistics("norm.running_mean", means([9.0, 9.0], [9.0, 9.0])),
         batch_norm.DIVIDED_BY_OTHER_COUNT),
        (OF_A_BATCH_NORM_LOSS, WrongLoss(1, 0.5, 0.5), batch_norm.OWN_BATCH),
        (OF_A_BATCH_NORM_LOSS, WrongLoss(1, 0.5, 0.7), updates.STATISTICS_PUT_TOGETHER),
        (OF_A_BATCH_NORM_GRADIENT, WrongGradient("norm1.weight", 2 * ONE, ONE, 2),
         batch_norm.BATCH_NORM_REDUCED_TWICE),
        (OF_A_BATCH_NORM_GRADIENT, WrongGradient("fc1.weight", 2 * ONE, ONE, 2),
         batch_norm.BACKWARD_NOT_OVER_ALL),
        (OF_DIFFERENT_REPLICAS, DifferentReplicas(np.nextafter(ONE, 9), ONE), replicas.LAST_BITS_DIFFER),
        (OF_DIFFERENT_REPLICAS, DifferentReplicas(ONE + 1, ONE), replicas.REPLICAS_DIFFER),
        (OF_NONFINITE_GRADIENT, 1.0, replicas.NONFINITE_HIDDEN_FROM_RANKS),
        (OF_NONFINITE_GRADIENT, math.nan, replicas.NONFINITE_FROM_NOWHERE),
        (OF_BUFFERS_APART, ModelSpec((BatchNorm("norm", 2),)), batch_norm.STATISTICS_OF_EACH_RANK),
        (OF_A_STEP_NOT_SKIPPED, skipped([1, 1], [1, 1], 2, 2, average=1), replicas.SKIP_MOVES_AVERAGES),
        (OF_A_STEP_NOT_SKIPPED, skipped([1, 1], [2, 2], 2, 2), replicas.NONFINITE_DECIDED_IN_PARTS),
        (OF_A_STEP_NOT_SKIPPED, skipped([1, 1], [math.inf, 2], 2, 2), replicas.NONFINITE_STEP_TAKEN),
        (OF_A_STEP_NOT_SKIPPED, skipped([1, 1], [1, 2], 2, 2), replicas.SKIP_DECIDED_PER_RANK),
        (OF_A_STEP_NOT_SKIPPED, skipped([1, 1], [1, 1], 2, 4), replicas.LOSS_SCALES_APART),
        (OF_A_STEP_NOT_SKIPPED, skipped([1, 1], [1, 1], 2, 2), replicas.SKIP_LEAVES_STATE),
    ],
)  # fmt: skip
def test_first_hypothesis_that_fits_names_the_cause(table: Any, evidence: Any, kind: Kind) -> None:
    assert kind.explains(first_cause(table, evidence))


def test_statistics_that_are_explained_keep_their_causes() -> None:
    sure = (values.ZERO(),)
    for buffer in ("norm.running_var", "norm.running_mean"):
        assert first_cause(OF_BATCH_NORM_STATISTICS, statistics(buffer, means(RIGHT, RIGHT), sure)) == ()


@pytest.mark.parametrize(
    ("buffer", "operation", "kind"),
    [
        ("norm.num_batches_tracked", 3, batch_norm.REMEASURE_COUNTS),
        ("norm.running_mean", 5, batch_norm.REMEASURE_CHANGES_MODE),
        ("norm.running_mean", 3, batch_norm.OWN_BATCH),
    ],
)
def test_wrong_remeasuring_is_explained(buffer: str, operation: int, kind: Kind) -> None:
    model, samples = ModelSpec((BatchNorm("norm", 3), Linear("fc1", 3, 2)), dtype="float64"), ((0, 1), (2, 3))
    operations = (
        ZeroGrad(),
        Backward(samples),
        Remeasure(samples),
        Observe(("buffers",)),
        Backward(samples),
        Observe(),
    )
    job = Job(2, operations, model, data=DataSpec(4, "real", 1))
    assert job.data is not None
    inputs, _ = job.data.arrays(model)
    looks = [{"buffers": {"norm.running_mean": inputs[list(held)].mean(axis=0)}} for held in samples]
    ranks = (RankTrace(rank, "done", (Record(3, "observe", 0.0, 1.0, seen),)) for rank, seen in enumerate(looks))
    assert kind.explains(first_cause(OF_REMEASURING, WrongRemeasuring(job, Trace(tuple(ranks)), buffer, operation)))


def test_one_parameter_that_is_not_reset_comes_before_a_sum() -> None:
    summed = values.SUMMED_NOT_AVERAGED(world_size=2)
    sums = {"other": 2 * ONE}
    told = (replicas.ONE_PARAMETER_NOT_RESET(), summed)
    assert parameter_not_reset((summed, values.ZERO()), {"other": ONE}, sums) == told
    assert parameter_not_reset((summed,), {"other": 2 * ONE}, sums) == ()
    rounding = 1e-17 * ONE
    assert parameter_not_reset((summed,), {"other": 2 * rounding}, {"other": 2 * rounding}) == ()
    assert parameter_not_reset((values.ZERO(),), {"other": ONE}, sums) == ()


def test_steps_by_own_gradients_leave_the_mean_of_the_ranks_right() -> None:
    ranks = [ONE - 5, ONE + 5]
    for rank in range(2):
        ((cause, after),) = own_steps(ONE, ranks, rank)
        assert (cause, after.tolist()) == (updates.UPDATED_BY_OWN(), ranks[rank].tolist())
    ((_, after),) = own_steps(ONE, [ONE, ONE + 5], 1)  # a step of rank 1 is lost
    assert after.tolist() != (ONE + 5).tolist()


def test_values_after_lost_steps_and_micro_batches_are_known() -> None:
    assert [array.tolist() for _, array in lost_steps(ONE, ONE, 3, 1)] == [[4.0, 6.0], [6.0, 9.0]]
    assert [array.tolist() for _, array in lost_micro_batches(ONE, 2)] == [[0.0, 0.0], [2.0, 3.0]]
    known = {cause.id: array.tolist() for cause, array in other_initial_values(list(OWN), 1)}
    assert [*other_initial_values(list(OWN), 0)][1][0] == replicas.INITIAL_VALUE_OF_OTHER(rank=0, other=1)
    assert known == {
        replicas.OWN_INITIAL_VALUE.id: [3.0, 6.0],
        replicas.INITIAL_VALUES_AVERAGED.id: [2.0, 4.0],
        replicas.SPLIT_BEFORE_BROADCAST.id: [1.0, 6.0],
    }


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        ((1, 1), (replicas.JOIN_ENDS_AT_RANK(rank=0),)),
        ((3, 3), (replicas.JOIN_LEAVES_STATE(),)),
        ((1, 3), (replicas.JOIN_STEPS_MISSING(),)),
    ],
    ids=["rank 0 ends with one step", "as it should be", "ranks end differently"],
)
def test_parameters_of_a_rank_that_had_fewer_batches_are_told(shown: tuple[int, int], told: tuple[Cause, ...]) -> None:
    job = joining([1, 3], ModelSpec((Linear("fc1", 3, 2),), loss="linear"))
    join = job.operations[0]
    assert isinstance(join, Join)

    def after(steps: int) -> Mapping[str, Any]:
        """The right parameters of a join in which every rank has at most so many batches."""
        cut = Join(tuple(batches[:steps] for batches in join.batches))
        *_, moment = moments(replace(job, operations=(cut, Observe(("parameters",)))))
        return {name: entry.value.exact[0] for name, entry in moment.arrays["parameters"].items()}

    ranks = (
        RankTrace(rank, "done", (Record(1, "observe", 0.0, 1.0, {"parameters": after(steps)}),))
        for rank, steps in enumerate(shown)
    )
    job = replace(job, operations=(join, Observe(("parameters",))))
    assert first_cause(OF_JOINED_PARAMETERS, AfterJoin(job, Trace(tuple(ranks)), PROMISED)) == told


def test_circumstances_of_the_job_give_further_causes() -> None:
    plain = Job(1, (), ModelSpec((Linear("fc1", 1, 1, bias=False),)))
    normed = Job(1, (), ModelSpec((BatchNorm("norm", 2),)))
    assert infinity_of_one_sign(plain) == replicas.INFINITY_OF_ONE_SIGN()
    assert infinity_of_one_sign(normed) is None
    assert join_stopped_by_buffers(plain) is None
    assert right_the_first_time(5) == replicas.RIGHT_THE_FIRST_TIME()
    assert right_the_first_time(2) is None
    assert evaluation_changes_gradients(()) == programs.EVALUATION_CHANGES_GRADIENTS()
    assert evaluation_changes_gradients((programs.CHANGES_GRADIENTS(operation="predict()"),)) is None


@pytest.mark.parametrize(
    ("last", "idle"), [(((0,), ()), True), (((0,), (1,)), False)], ids=["a rank without samples", "all have samples"]
)
def test_rank_without_samples_is_a_possible_cause_of_a_gradient_not_reduced(
    last: tuple[tuple[int, ...], ...], idle: bool
) -> None:
    done = (Backward(((), (0,)), sync=False), Backward(last), Observe(("gradients",)))
    job = Job(2, done, model=ModelSpec((Linear("fc", 1, 1),), "linear"), data=DataSpec(2))
    of = WrongInJob(job, 2, "gradients", (values.NOT_REDUCED(),), "float32")
    told = causes_in_job(of)
    assert told[0] == values.NOT_REDUCED()
    after_no_sync = programs.NOT_REDUCED_AFTER_NO_SYNC().but("possible")
    assert told[1:] == (operations.IDLE_RANK_SKIPS(ranks=(1,)).but("possible") if idle else after_no_sync,)
    again = replace(job, operations=(done[0], done[1], done[1], done[2]))
    assert after_no_sync not in causes_in_job(replace(of, job=again, position=3))
    assert causes_in_job(replace(of, told=(values.WRONG_SIGN(),))) == (values.WRONG_SIGN(),)
