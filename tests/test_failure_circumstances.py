"""Groups of failures by the circumstances of their Jobs: what a cause needs to show."""

from __future__ import annotations

from typing import Literal

import pytest
from failed_verdicts import failed, headlines

from ddpcheck.causes import Cause, collectives, gradients, programs, ranks, replicas, values
from ddpcheck.job import (
    AllGather,
    Backward,
    Calls,
    DataSpec,
    Job,
    MeasureCollective,
    Observe,
    Operation,
    Save,
    TensorSpec,
    ZeroGrad,
)
from ddpcheck.models.spec import BatchNorm, Embedding, Linear, ModelSpec, Scale, mlp
from ddpcheck.running.job_circumstances import circumstances_of, common_circumstances

ALL = ((0, 1), (2, 3))
NONFINITE, GUESS = values.NONFINITE(), programs.WRONG_FORWARD_VALUES()
ERROR = ranks.RANK_RAISED(error="IndexError", at="mine.py:41 in forward")
PADDING, OTHER = gradients.ID_TAKEN_FOR_PADDING(which="last"), gradients.OTHER_PARAMETERS_GRADIENT(parameter="b")


def job(*operations: Operation, model: ModelSpec | None = None) -> Job:
    return Job(2, operations, model or mlp((2, 2)), data=DataSpec(4))


PLAIN = job(ZeroGrad(), Backward(ALL), Observe())
WINDOW = job(Backward(ALL, sync=False), Observe())
EMBEDDED = job(ZeroGrad(), Backward(ALL), model=ModelSpec((Embedding("ids", 4, 2), Linear("fc", 2, 2))))
IN_WINDOWS = [failed(f"window {number}", "accumulation", NONFINITE, job=WINDOW) for number in range(3)]


@pytest.mark.parametrize(
    ("operation", "circumstance"),
    [
        (Backward(((0, 1), (2,))), "uneven batches"),
        (Backward(((0, 1), ())), "a rank without samples"),
        (Backward(ALL, sync=False), "no_sync"),
        (Backward(ALL, sync=False, interrupted=(1,)), "interrupted"),
        (Backward(ALL, branches=(("a",), ())), "a parameter unused on some ranks"),
        (Save(), "save"),
    ],
)
def test_circumstance_is_told(operation: Operation, circumstance: str) -> None:
    model = ModelSpec((Linear("fc", 2, 2), Linear("side", 2, 2, branch="a")))
    made = job(operation, Backward(ALL), model=model)
    assert circumstance in circumstances_of(failed("a", "gradients", NONFINITE, job=made))
    assert circumstance not in circumstances_of(failed("a", "gradients", NONFINITE, job=job(Backward(ALL))))


def test_large_tensor_is_a_circumstance() -> None:
    small, large = (job(Backward(ALL), model=mlp((2, size, 2))) for size in (512, 513))
    assert "a large tensor" not in circumstances_of(failed("a", "gradients", NONFINITE, job=small))
    assert "a large tensor" in circumstances_of(failed("a", "gradients", NONFINITE, job=large))


@pytest.mark.parametrize("other", ["all_gather", "all_reduce"])
def test_repeated_calls_have_the_circumstance_of_their_collective(other: Literal["all_gather", "all_reduce"]) -> None:
    gathered = Job(2, (AllGather(TensorSpec((2,), "float32")),))
    rows, guess = collectives.ROWS_IN_WRONG_ORDER(order=(1, 0)), collectives.OTHER_RESULT()
    for calls in (Calls(other, 20), MeasureCollective(other, 8)):
        verdicts = [
            *(failed(f"rows {number}", "collectives", rows, job=gathered) for number in range(2)),
            failed("calls", "collectives", guess, job=Job(2, (calls,))),
        ]
        assert headlines(verdicts) == [rows.headline, *[guess.headline] * (other == "all_reduce")]


def test_failure_without_any_cause_is_a_symptom_of_a_guess_about_a_layer_of_its_model() -> None:
    normal = ModelSpec((Linear("fc", 2, 2), BatchNorm("norm", 2)))
    guess = failed("local", "replica_sync", replicas.BATCH_NORM_ITSELF(), job=job(Backward(ALL), Save(), model=normal))
    for model, alone in ((normal, False), (mlp((2, 2)), True)):
        one = failed("long", "programs", job=job(Backward(ALL), model=model))
        assert len(headlines([guess, one])) == 1 + alone


def test_operations_after_the_failure_are_no_circumstances() -> None:
    made = job(Backward(ALL), Observe(), Save(), Backward(ALL))
    early = circumstances_of(failed("a", "gradients", NONFINITE, job=made, operation=1))
    assert not {"save", "several backwards"} & early
    assert {"save", "several backwards"} <= circumstances_of(failed("a", "gradients", NONFINITE, job=made))


def test_circumstances_that_all_jobs_have_are_common() -> None:
    saved = job(Save(), Backward(ALL, sync=False))
    both = [failed("a", "gradients", PADDING, job=made) for made in (WINDOW, saved)]
    assert common_circumstances(both) == {"no_sync"}
    assert common_circumstances([failed("a", "gradients", PADDING), both[1]]) == {"no_sync", "save"}
    assert common_circumstances([failed("a", "gradients", PADDING)]) == frozenset()


@pytest.mark.parametrize(("made", "alone"), [(PLAIN, True), (WINDOW, False), (None, False)])
def test_guess_without_the_circumstances_of_a_cause_is_not_its_symptom(made: Job | None, alone: bool) -> None:
    guess = failed("local", "replica_sync", GUESS, job=made)
    told = headlines([*IN_WINDOWS, guess])
    assert told == [NONFINITE.headline, *[GUESS.headline] * alone]


def test_failure_without_any_cause_is_a_symptom_in_all_circumstances() -> None:
    told = headlines([*IN_WINDOWS, failed("large", "replica_sync", job=PLAIN)])
    assert told == [NONFINITE.headline]


def test_guess_about_a_model_without_the_layer_of_a_cause_is_not_its_symptom() -> None:
    padded = [failed(f"exact {number}", "gradients", PADDING, job=EMBEDDED) for number in range(2)]
    guess = failed("many", "buckets", OTHER.but("possible"), job=PLAIN)
    assert headlines([*padded, guess]) == [PADDING.headline, OTHER.headline]


@pytest.mark.parametrize("slight", [ERROR, values.LAST_BITS_WRONG(count=1, size=4, ulp=2)], ids=["error", "bits"])
@pytest.mark.parametrize(("made", "alone"), [(PLAIN, True), (WINDOW, False), (None, True)])
def test_error_or_small_difference_in_one_check_is_a_symptom_in_the_circumstances_of_a_cause(
    made: Job | None, alone: bool, slight: Cause
) -> None:
    one = failed("mean", "gradients", slight, job=made)
    told = headlines([*IN_WINDOWS, one])
    assert sorted(told) == sorted([NONFINITE.headline, *[slight.headline] * alone])
    more = [one, failed("steps", "gradients", slight, job=made)]
    assert slight.headline in headlines([*IN_WINDOWS, *more])


def test_rare_description_of_a_value_comes_before_a_rare_error() -> None:
    rare = failed("unused", "buckets", values.NOT_REDUCED(), job=WINDOW), failed("unfrozen", "ranks", ERROR, job=PLAIN)
    many = [failed(f"window {number}", "accumulation", PADDING, job=WINDOW) for number in range(7)]
    told = headlines([*many, *rare])
    assert told == [PADDING.headline, values.NOT_REDUCED().headline, ERROR.headline]


def test_a_cause_of_ranks_without_samples_implies_nothing_where_all_have_some() -> None:
    idle = job(ZeroGrad(), Backward(((0, 1), ())), Observe())
    local, part = values.NOT_REDUCED(), gradients.PART_OF_LARGE_TENSOR_LOCAL(elements=4096, first=2048, last=4095)
    elsewhere = failed("large", "buckets", part, job=PLAIN)
    assert headlines([failed("local", "accumulation", local, job=idle), elsewhere]) == [local.headline, part.headline]
    assert headlines([failed("local", "accumulation", local, job=PLAIN), elsewhere]) == [local.headline]


def test_a_guess_about_an_earlier_backward_explains_no_first_one() -> None:
    left, unpacked = gradients.STATE_LEFT_BEHIND(), gradients.UNPACKED_IN_OTHER_ORDER()
    twice = job(Backward(ALL), Backward(ALL), Observe())
    later = [failed(f"later {number}", "accumulation", left, job=twice) for number in range(3)]
    assert headlines([*later, failed("a", "gradients", unpacked, job=twice)]) == [left.headline]
    assert headlines([*later, *(failed(name, "gradients", unpacked, job=PLAIN) for name in "ab")]) == [
        unpacked.headline
    ]


def test_a_buffer_is_a_circumstance() -> None:
    buffered = ModelSpec((Linear("fc", 2, 2), Scale("scale", 2, buffer=True)))
    assert "a buffer" in circumstances_of(failed("a", "gradients", NONFINITE, job=job(Backward(ALL), model=buffered)))
    assert "a buffer" not in circumstances_of(failed("a", "gradients", NONFINITE, job=PLAIN))
