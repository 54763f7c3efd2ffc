"""Assertions about values: the range of bounds, and cases that are not judged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ddpcheck import assertions
from ddpcheck.causes import Cause, Elements, collectives, gradients, operations, ranks, values
from ddpcheck.hypotheses.arrays import Evidence
from ddpcheck.hypotheses.causes_of_wrong_arrays import likely_causes
from ddpcheck.job import AllReduce, Backward, Barrier, DataSpec, Job, ReduceScatter, Sleep, TensorSpec
from ddpcheck.launchers.processes import describe_exit
from ddpcheck.models.spec import Linear, ModelSpec
from ddpcheck.trace import RankTrace, Record, Trace, WrongForm
from ddpcheck.verdict import Diagnosis, Finding

OTHER = Cause("of-somebody-else")


def causes_of(trace: Trace) -> tuple[Cause, ...]:
    """The causes in the Finding of an incomplete Trace."""
    with pytest.raises(Finding) as found:
        assertions.completed(trace)
    return found.value.diagnosis.causes


def found_in(job: Job, trace: Trace) -> Diagnosis:
    """The Diagnosis of a Job that did not complete."""
    with pytest.raises(Finding) as failed:
        assertions.completed(trace)
    return assertions.explained(failed.value, job, trace).diagnosis


@pytest.mark.parametrize(("got", "expected", "bound"), [(np.nan, -np.inf, np.inf), (3.5, 3.4, np.nan), (1.0, 1.1, 0.2)])
def test_infinite_bounds_are_not_judged(got: float, expected: float, bound: float) -> None:
    assertions.within(np.float32([got]), np.array([expected]), np.array([bound]), "parameter", 0)


@pytest.mark.parametrize(("got", "expected", "bound"), [(np.nan, 1.0, 0.5), (np.inf, 1.0, 0.5), (1.0, 1.1, 0.05)])
def test_value_beyond_the_bound_is_reported_with_both_numbers(got: float, expected: float, bound: float) -> None:
    right = np.array([2.0, expected])
    with pytest.raises(Finding, match=r"parameter\[1\] on rank 2: got .*, but should be .*rounding allows"):
        assertions.within(np.array([2.0, got]), right, np.array([bound, bound]), "parameter", 2)


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (
            'File "/usr/lib/python3.11/subprocess.py", line 1196, in communicate',
            ranks.WAITS_FOR_A_PROGRAM(ranks=(1,)),
        ),
        ('File "<frozen importlib._bootstrap>", line 241, in _call', ranks.IMPORTS_MODULES(ranks=(1,))),
        ('File "my_ddp.py", line 7, in recv', ranks.ALL_WAIT_IN_ONE_OPERATION()),
    ],
)
def test_hanging_rank_may_wait_for_something_other_than_a_rank(line: str, cause: Cause) -> None:
    waiting = RankTrace(0, "hung", (), stack='File "my_ddp.py", line 7, in recv')
    assert causes_of(Trace((waiting, RankTrace(1, "hung", (), stack=line)))) == (cause,)


def test_forked_rank_may_wait_for_a_missing_thread() -> None:
    line = 'File "/usr/lib/python3.11/concurrent/futures/_base.py", line 451, in result'
    both = tuple(RankTrace(rank, "hung", (), stack=line) for rank in range(2))
    assert causes_of(Trace(both)) == (ranks.ALL_WAIT_IN_ONE_OPERATION(), ranks.WAITS_FOR_A_THREAD())
    one = Trace((both[0], RankTrace(1, "hung", (), stack='File "my_ddp.py", line 7, in recv')))
    assert causes_of(one) == (ranks.ALL_WAIT_IN_ONE_OPERATION(),)


@pytest.mark.parametrize(
    ("kinds", "cause"),
    [
        (["barrier"], ranks.WAITS_WITHOUT_PEERS()),
        (["sample", "sample"], ranks.LOCAL_OPERATION_DOES_NOT_END(operations=("sample",))),
        (["barrier", "barrier"], ranks.ALL_WAIT_IN_ONE_OPERATION()),
    ],
)
def test_awaited_ranks_depend_on_the_operation_and_the_arrived_ranks(kinds: list[str], cause: Cause) -> None:
    stuck = (RankTrace(rank, "hung", (Record(0, kind, 0.0, None, {}),)) for rank, kind in enumerate(kinds))
    assert causes_of(Trace(tuple(stuck))) == (cause,)


def test_hanging_rank_of_a_group_waits_for_members_only() -> None:
    def rank(number: int, outcome: Any, *left: float | None) -> RankTrace:
        return RankTrace(number, outcome, tuple(Record(at, "barrier", 0.0, end, {}) for at, end in enumerate(left)))

    through = Trace((rank(0, "hung", 1.0, None), rank(1, "done", 1.0, 1.0), rank(2, "hung", 1.0, None)))
    told = found_in(Job(3, (Barrier(), Barrier((0, 2)))), through)
    assert "hung in operation 1 (barrier) in group [0, 2] for more" in told.headline
    assert told.causes == (ranks.ALL_WAIT_IN_ONE_OPERATION(),)
    assert found_in(Job(3, (Barrier(), Barrier())), through).cause == ranks.LEFT_COLLECTIVE_EARLY(ranks=(1,))


@pytest.mark.parametrize("outcome", ["died", "raised"])
def test_a_message_that_gloo_refuses_for_its_size_is_told_in_field_terms(outcome: Any) -> None:
    said = "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  [enforce fail at pair.cc:446] "
    said += "op.preamble.length <= op.nbytes. 4000 vs 40"
    rank = RankTrace(0, outcome, (Record(0, "all_reduce", 0.0, None, {}),), said, failed_at=1.0)
    told = found_in(Job(1, (AllReduce(TensorSpec((10,))),)), Trace((rank,)))
    assert told.cause == ranks.MESSAGE_TOO_LARGE(sent=4000, room=40)
    assert "message of 4000 bytes" in told.cause.headline


def test_an_odd_shape_is_not_blamed_alone_where_its_dtype_is_new() -> None:
    raised = RankTrace(0, "raised", (Record(1, "all_reduce", 0.0, None, {}),), "no", failed_at=1.0)
    for shape, odd in (((0,), operations.EMPTY_ARRAY()), ((), operations.ZERO_DIMENSIONS())):
        for dtype, also in (("float16", (operations.NEW_DTYPE(dtype="float16"),)), ("float32", ())):
            job = Job(1, (AllReduce(TensorSpec((3,))), AllReduce(TensorSpec(shape, dtype))))
            told = found_in(job, Trace((raised,))).causes
            assert told == (odd, *also, ranks.RANK_RAISED(error="no", at="a place without a stack"))


@pytest.mark.parametrize(
    ("dtype", "shape", "cause"),
    [
        ("float64", (3, 2), operations.NOT_CONVERTED_BACK(dtype="float64", right_dtype="float32")),
        ("float32", (6,), operations.SHAPE_LOST(shape=(6,), right_shape=(3, 2))),
        ("float32", (5,), collectives.RESULTS_MIXED_UP(operation=0)),
        ("float32", (2, 2), ranks.RESULT_VIOLATES_CONTRACT(operation="all_reduce")),
    ],
)
def test_wrong_form_names_the_source_of_a_result(dtype: str, shape: tuple[int, ...], cause: Cause) -> None:
    job = Job(1, (AllReduce(TensorSpec((5,))), AllReduce(TensorSpec((3, 2)))))
    form = WrongForm(dtype, shape, "float32", (3, 2))
    invalid = RankTrace(0, "invalid", (Record(1, "all_reduce", 0.0, None, {}),), "no", wrong_form=form)
    assert found_in(job, Trace.from_plain(Trace((invalid,)).to_plain())).cause == cause


def test_a_missing_method_remains_the_only_cause() -> None:
    """Rank 1 has no samples, which explains other failures of its backward."""
    job = Job(2, (Backward(((0,), ())),), ModelSpec((Linear("fc", 2, 1),)), data=DataSpec(1))
    lacking = RankTrace(0, "invalid", (Record(0, "backward", 0.0, None, {}),), "no", missing="no_sync")
    told = found_in(job, Trace.from_plain(Trace((lacking, RankTrace(1, "done", ()))).to_plain()))
    assert told.headline == "rank 0 lacks a method for operation 0 (backward): no"
    assert told.causes == (ranks.METHOD_MISSING(method="no_sync"),)


def test_block_cut_at_rank_is_recognised_by_its_shape() -> None:
    job = Job(3, (ReduceScatter(TensorSpec((4,)), "sum", (1, 2)),))
    form = WrongForm("float32", (0,), "float32", (2,))
    invalid = RankTrace(2, "invalid", (Record(0, "reduce_scatter", 0.0, None, {}),), "no", wrong_form=form)
    others = tuple(RankTrace(rank, "done", ()) for rank in range(2))
    assert found_in(job, Trace((*others, invalid))).cause == operations.BLOCK_OF_RANK(rank=2, position=1)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("RuntimeError: no kernel image is available", False),
        ("RuntimeError: Timed out after 1 s", True),
        ("TimeoutError: rank 1", True),
    ],
)
def test_time_limit_errors_mention_time(error: str, told: bool) -> None:
    job = Job(2, (Sleep(1, 0.1), AllReduce(TensorSpec((3,)))))
    raised = RankTrace(0, "raised", (Record(1, "all_reduce", 0.0, None, {}),), error, failed_at=1.0)
    trace = Trace((raised, RankTrace(1, "hung", (Record(1, "all_reduce", 0.0, None, {}),))))
    gave_up = operations.GAVE_UP_WAITING(rank=0, late=1, seconds=0.1)
    assert (found_in(job, trace).cause == gave_up) == told


def test_error_that_torch_calls_its_own_bug_blames_torch() -> None:
    error = (
        "RuntimeError: Encountered gradient which is undefined, but still allreduced by DDP reducer. This indicates a bug in "
        "DDP implementation, please report a bug with a repro to PyTorch."
    )
    raised = RankTrace(0, "raised", (Record(0, "backward", 0.0, None, {}),), error, failed_at=1.0)
    job = Job(2, (Backward(((0,), (1,))),), ModelSpec((Linear("fc1", 1, 1),)), data=DataSpec(2))
    trace = Trace((raised, RankTrace(1, "hung", (Record(0, "backward", 0.0, None, {}),))))
    assert found_in(job, trace).cause == operations.UNDEFINED_IN_TORCH()


def test_death_precedes_errors_of_other_ranks() -> None:
    raised = RankTrace(0, "raised", (), "connection closed by peer", failed_at=5.0)
    died = RankTrace(1, "died", (), "rank 1 was killed by SIGSEGV", failed_at=5.1)
    with pytest.raises(Finding, match=r"rank 1 died in .* was killed by SIGSEGV"):
        assertions.completed(Trace((raised, died)))
    with pytest.raises(Finding, match=r"rank 0 raised an error in .* closed by peer"):
        assertions.completed(Trace((raised, replace(died, failed_at=6.0))))


@pytest.mark.parametrize(
    ("got", "cause"),
    [
        ([[3.4e38, 0.0], [np.inf, 1.0]], values.PERMUTED()),
        ([[1.0, 2.0], [3.0, np.nan]], OTHER),
        ([[3.4e38, np.inf], [0.0, 2.0]], values.BITS_CHANGED().among(Elements(1, 4, 3, 3))),
        ([[3.4e38, np.inf], [0.0, 0.0]], values.ZERO().among(Elements(1, 4, 3, 3))),
    ],
)
def test_moved_data_is_not_mistaken_for_rounded(got: list[list[float]], cause: Cause) -> None:
    expected = np.array([[3.4e38, np.inf], [0.0, 1.0]], np.float32)
    other = np.array([[1.0, 2.0], [3.0, np.nan]], np.float32)
    evidence = Evidence(2, alternatives=((OTHER, other),), moved=True)
    assert likely_causes(np.array(got, np.float32), expected, evidence) == (cause,)


def test_values_left_by_construction_explain_whole_arrays_only() -> None:
    expected, other = np.float32([[1, 2], [3, 522]]), np.float32([[7, 8], [9, 520]])
    for cause in (gradients.AT_OWN_INITIAL(values="parameters"), gradients.SUMMED_AT_OWN_INITIAL(values="parameters")):
        evidence = Evidence(2, alternatives=((cause, other),))
        assert cause in likely_causes(other, expected, evidence)
        one = np.float32([[1, 2], [3, 520]])
        assert cause.id not in {each.id for each in likely_causes(one, expected, evidence)}


def test_a_factor_is_seen_beside_infinities() -> None:
    expected = np.array([2.0, np.inf, 4.0, np.nan])
    (cause,) = likely_causes(1.5 * expected, expected, Evidence(3))
    assert cause.get("factor") == 1.5
    assert likely_causes(np.array([3.0, 1.0, 6.0, np.nan]), expected, Evidence(3)) == ()


def test_a_line_that_the_headline_shows_is_not_announced_below() -> None:
    died = RankTrace(2, "died", (), f"mpiexec {describe_exit(139)}")
    with pytest.raises(Finding, match="exited with status 139: a process was killed by SIGSEGV") as found:
        assertions.completed(Trace((died,)))
    diagnosis = found.value.diagnosis
    assert [cause.id for cause in diagnosis.causes] == [ranks.CRASHED.id]
    assert (diagnosis.advice, diagnosis.details) == ("", ())


@pytest.mark.parametrize("code", [1, 128, 255])
def test_other_statuses_are_no_signals(code: int) -> None:
    assert describe_exit(code) == f"exited with status {code}"


def test_message_of_aborting_compiled_code_is_the_cause() -> None:
    said = "  what():  [enforce fail at /gloo/pair.cc:456] length <= size. 20 vs 8. Received data size doesn't match"
    died = RankTrace(
        1, "died", (), f"terminate called\n{said}\nFatal Python error: Aborted\nrank 1 was killed by SIGABRT"
    )
    with pytest.raises(Finding) as found:
        assertions.completed(Trace((RankTrace(0, "hung", ()), died)))
    assert found.value.diagnosis.headline.endswith("rank 1 was killed by SIGABRT")
    message = "length <= size. 20 vs 8. Received data size doesn't match"
    assert found.value.diagnosis.causes == (ranks.UNCAUGHT_COMPILED_ERROR(message=message),)


def test_long_error_is_shown_by_its_first_line() -> None:
    error = 'Traceback:\n  File "a.py", line 1, in f\n    g()\nValueError: no device\nThere are two.\nAsk for another.'
    with pytest.raises(Finding, match=r"in start-up: ValueError: no device\n"):
        assertions.completed(Trace((RankTrace(0, "raised", (), error),)))
