"""Evidence in, causes out: traffic, resources of processes, and ranks that do not notice a failure."""

from __future__ import annotations

from typing import Any

import pytest

from ddpcheck.causes import Kind, lifecycle, process_state, traffic
from ddpcheck.hypotheses.choose_causes import all_causes, first_cause
from ddpcheck.hypotheses.lifecycle import Unaware, failure_forgotten, sent_data_lost_by_close
from ddpcheck.hypotheses.ordered_hypotheses.processes import (
    OF_A_CHANGED_PROCESS,
    OF_A_GROWING_PROCESS,
    OF_A_WRONG_COUNT,
    OF_BYTES_INSIDE_NO_SYNC,
    OF_GROWING_BYTES,
    OF_MANY_MESSAGES,
    OF_MORE_SENT,
    OF_TOO_FEW_COUNTED,
)
from ddpcheck.hypotheses.ordered_hypotheses.ranks import (
    OF_A_MISREPORT,
    OF_AN_UNAWARE_RANK,
    OF_FAILURE_AS_SUCCESS,
    OF_UNNOTICED_MISMATCH,
)
from ddpcheck.hypotheses.traffic import GrowingBytes, ManyMessages, MoreSent, SentInside, WrongCount
from ddpcheck.job import AllReduce, Close, Job, Kill, Operation, Sleep, TensorSpec
from ddpcheck.launchers.failing_rank_program import CONSEQUENCE, ROOT_CAUSE, Trial
from ddpcheck.launchers.launcher import Ending
from ddpcheck.trace import Outcome, RankTrace, Record, Trace

REDUCED = AllReduce(TensorSpec((3,), "float32"), "sum")


def unaware(operation: Operation, outcome: Outcome, other: Outcome = "hung", *, late: bool = False) -> Unaware:
    """Rank 0 ends so, with this operation, after the death of rank 2; rank 1 ends as `other`."""
    job = Job(3, (REDUCED, Kill(2), *[Sleep(0, 0.1)] * late, operation))
    here = (Record(2 + late, operation.kind, 0.0, None, {}),)
    first = RankTrace(0, outcome, here)
    return Unaware(job, Trace((first, RankTrace(1, other, here), RankTrace(2, "died", ()))), first, 2)


def trial(status: int | None = 1, ended: Ending | None = None, output: str = "") -> Trial:
    return Trial(1, status, ended, None, output)


@pytest.mark.parametrize(
    ("table", "evidence", "kind"),
    [
        (OF_MORE_SENT, MoreSent([900, 100, 100], 100, 66.0), traffic.EVERYTHING_THROUGH_ONE_RANK),
        (OF_MORE_SENT, MoreSent([400, 400, 400], 100, 66.0), traffic.RING_SENDS_WHOLE),
        (OF_MORE_SENT, MoreSent([200, 200, 200], 100, 66.0), traffic.WHOLE_ARRAY_TO_ALL),
        (OF_MORE_SENT, MoreSent([132, 132, 132], 100, 66.0), traffic.SENT_TWICE),
        (OF_MORE_SENT, MoreSent([140, 140, 116], 100, 66.0), traffic.SENT_TWICE),
        (OF_MORE_SENT, MoreSent([300, 300, 300], 100, 66.0), traffic.MORE_THAN_LEAST),
        (OF_BYTES_INSIDE_NO_SYNC, SentInside(950, 1000, 1900, 2000, 2000.0), traffic.REDUCED_INSIDE_NO_SYNC),
        (OF_BYTES_INSIDE_NO_SYNC, SentInside(500, 1000, 1000, 2010, 2000.0), traffic.SENDS_INSIDE_NO_SYNC),
        (OF_BYTES_INSIDE_NO_SYNC, SentInside(500, 1000, 1000, 1500, 2000.0), traffic.SENDS_INSIDE_NO_SYNC),
        (OF_BYTES_INSIDE_NO_SYNC, SentInside(500, 1000, 510, 1500, 2000.0), traffic.SENT_AFTER_BACKWARD),
        (OF_BYTES_INSIDE_NO_SYNC, SentInside(700, 0, 1000, 1000, 2000.0), traffic.SENT_AFTER_BACKWARD),
        (OF_GROWING_BYTES, GrowingBytes([1000, 1500, 2000], 900.0), traffic.GROWS_WITH_STEPS),
        (OF_GROWING_BYTES, GrowingBytes([500, 1500, 1000], 1000.0), traffic.SENT_AFTER_BACKWARD),
        (OF_TOO_FEW_COUNTED, [0, 10], traffic.PARTLY_COUNTED),
        (OF_TOO_FEW_COUNTED, [0, 0], traffic.NOT_COUNTED),
        (OF_A_WRONG_COUNT, WrongCount(100, 800), traffic.COUNTS_SCALED),
        (OF_A_WRONG_COUNT, WrongCount(100, 0), traffic.NOT_COUNTED),
        (OF_MANY_MESSAGES, ManyMessages(40, 40), traffic.GRADIENTS_ALONE),
        (OF_MANY_MESSAGES, ManyMessages(20, 40), traffic.SMALL_GROUPS),
        (OF_A_GROWING_PROCESS, "bytes", process_state.MEMORY_GROWS),
        (OF_A_GROWING_PROCESS, "threads", process_state.RESOURCE_LEFT),
        (OF_AN_UNAWARE_RANK, unaware(AllReduce(REDUCED.tensor, "sum", (0, 2)), "hung"),
         lifecycle.DEATH_UNNOTICED_IN_GROUP),
        (OF_AN_UNAWARE_RANK, unaware(REDUCED, "hung", "raised"), lifecycle.ERROR_NOT_PASSED_ON),
        (OF_AN_UNAWARE_RANK, unaware(REDUCED, "hung"), lifecycle.DEATH_UNNOTICED),
        (OF_AN_UNAWARE_RANK, unaware(REDUCED, "died"), lifecycle.PROCESS_ENDED_BY_DEATH),
        (OF_UNNOTICED_MISMATCH, unaware(REDUCED, "hung", "raised").trace, lifecycle.ERROR_NOT_PASSED_ON),
        (OF_UNNOTICED_MISMATCH, unaware(REDUCED, "hung").trace, lifecycle.MESSAGES_UNLABELLED),
        (OF_FAILURE_AS_SUCCESS, True, lifecycle.SIGNAL_TAKEN_FOR_SUCCESS),
        (OF_FAILURE_AS_SUCCESS, False, lifecycle.STATUS_LOST),
        (OF_A_MISREPORT, trial(-9), lifecycle.OWN_KILL_REPORTED),
        (OF_A_MISREPORT, trial(ended=Ending("rank 0 was killed", 0, -9)), lifecycle.OWN_KILL_REPORTED),
        (OF_A_MISREPORT, trial(output=ROOT_CAUSE), lifecycle.RANKS_AWAITED_IN_ORDER),
        (OF_A_MISREPORT, trial(output=CONSEQUENCE), lifecycle.OUTPUT_NOT_PASSED_ON),
        (OF_A_MISREPORT, trial(), lifecycle.LAST_WORDS_LOST),
    ],
)  # fmt: skip
def test_first_hypothesis_that_fits_names_the_cause(table: Any, evidence: Any, kind: Kind) -> None:
    assert kind.explains(first_cause(table, evidence))


def test_rank_that_comes_late_may_not_be_told() -> None:
    causes = first_cause(OF_AN_UNAWARE_RANK, unaware(REDUCED, "hung", late=True))
    assert [cause.id for cause in causes] == [lifecycle.DEATH_UNNOTICED.id, lifecycle.TOLD_TO_WAITING_RANKS_ONLY.id]
    assert first_cause(OF_AN_UNAWARE_RANK, unaware(REDUCED, "done")) == ()


def test_generators_and_settings_that_change_are_told_apart() -> None:
    told = all_causes(OF_A_CHANGED_PROCESS, ["numpy.random", "locale"])
    assert {cause.id for cause in told} <= {process_state.GENERATOR_CHANGED.id, process_state.SETTING_CHANGED.id}
    assert process_state.SETTING_CHANGED(settings=("locale",)) in told


@pytest.mark.parametrize(("reached", "lost"), [(0, False), (1, True), (2, False)])
def test_data_is_lost_by_close_only_between_a_delay_and_the_own_close(reached: int, *, lost: bool) -> None:
    rank = RankTrace(1, "raised", (Record(reached, "all_reduce", 0.0, None, {}),))
    assert (sent_data_lost_by_close(Job(2, (Sleep(1, 0.1), REDUCED, Close())), rank) is not None) == lost


def test_error_of_another_call_shows_that_a_failure_was_forgotten() -> None:
    assert failure_forgotten(True) == lifecycle.FAILURE_FORGOTTEN()
    assert failure_forgotten(False) is None
