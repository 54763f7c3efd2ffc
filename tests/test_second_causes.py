"""A check whose failure repeats a cause searches on for another one."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import minimal_adapter
import pytest
from planted.faults_together import alone, reference

from ddpcheck import Diagnosis, Finding, Job, Session, Verdict, run_checks
from ddpcheck.causes import Cause, gradients, replicas, updates, values
from ddpcheck.job import AllReduce, TensorSpec
from ddpcheck.running import second_causes
from ddpcheck.running.check_runner import Settings
from ddpcheck.running.failure_groups import identity_of
from ddpcheck.running.known_causes import KnownCauses
from ddpcheck.running.profiles import profile_named
from ddpcheck.running.second_causes import SecondCauses
from ddpcheck.trace import Trace
from ddpcheck.verdict import Status
from ddpcheck_properties.drawing import for_each

NOT_REDUCED = values.NOT_REDUCED()
NAN_KEPT = replicas.NAN_KEPT_AFTER_ZERO_GRAD()
MANY = tuple(f"a{number}" for number in range(5))
"""Checks that fail by a cause before others search on."""
LONG = 100.0
"""Seconds of a check that leave time to search on."""


def failed(
    check: str, *causes: Cause, status: Status = "failed", by_rank: tuple[str, ...] = (), family: str = "gradients"
) -> Verdict:
    told = Diagnosis(f"{check}: got 2, but should be 1", causes, by_rank=by_rank)
    return Verdict("mine", 2, check, family, status, jobs=3, diagnosis=told)


def never() -> Verdict:
    raise AssertionError("the check should not run again")


def told_in_turn(
    again: Callable[[], Verdict],
    names: Iterable[str] = MANY,
    seconds: float = LONG,
    status: Status = "failed",
    family: str = "gradients",
) -> Verdict:
    """The verdict on check "b", which fails as not reduced, after checks of these names that do."""
    with Session(minimal_adapter.adapter, 2) as session:
        second = SecondCauses()
        passed = Verdict("mine", 2, "other", "collectives", "passed", seconds)
        for verdict in (passed, *(failed(name, NOT_REDUCED) for name in names)):
            assert second.searched_on(session, verdict, never) == verdict
        found = second.searched_on(session, failed("b", NOT_REDUCED, status=status, family=family), again)
        assert session.known is None
        return found


def test_a_repeated_cause_makes_room_for_another() -> None:
    found = told_in_turn(lambda: failed("b", NAN_KEPT))
    assert identity_of(found) == (NAN_KEPT.id,)
    assert (found.status, found.jobs) == ("failed", 6)
    assert found.diagnosis is not None
    assert NOT_REDUCED.headline in found.diagnosis.details[-1]


def test_a_cause_of_few_checks_stays() -> None:
    assert identity_of(told_in_turn(never, ())) == (NOT_REDUCED.id,)
    assert identity_of(told_in_turn(never, ("b", *MANY[1:]))) == (NOT_REDUCED.id,)  # "b" at another world size


def test_a_hang_is_not_repeated() -> None:
    assert told_in_turn(never, status="hung").status == "hung"


def test_a_check_that_blames_a_condition_does_not_search() -> None:
    assert identity_of(told_in_turn(never, family="rendezvous")) == (NOT_REDUCED.id,)


def test_a_run_without_time_to_spare_does_not_search() -> None:
    assert identity_of(told_in_turn(never, seconds=0.0)) == (NOT_REDUCED.id,)


@pytest.mark.parametrize(
    "again",
    [
        Verdict("mine", 2, "b", "gradients", "passed"),
        Verdict("mine", 2, "b", "gradients", "skipped"),
        Verdict("mine", 2, "b", "gradients", "unknown", reason="the check crashed"),
        failed("b"),
        failed("b", NOT_REDUCED),
        failed("b", NAN_KEPT, NOT_REDUCED),
        failed("b", values.PART_NOT_REDUCED()),
        failed("b", gradients.ACCUMULATED_NOT_REDUCED()),
        failed("b", replicas.REPLICAS_DIFFER()),
        failed("b", NAN_KEPT.but("possible")),
        failed("b", NAN_KEPT, by_rank=("raised", "done")),
    ],
    ids=lambda verdict: f"{verdict.status} {verdict.diagnosis and [each.id for each in verdict.diagnosis.causes]}",
)
def test_no_failure_that_a_known_cause_may_explain_is_taken(again: Verdict) -> None:
    assert identity_of(told_in_turn(lambda: again)) == (NOT_REDUCED.id,)


JOBS = [Job(2, (AllReduce(TensorSpec((size,))),)) for size in range(1, 31)]


def judge(job: Job, trace: Trace) -> None:
    """Fail by one cause, and by another in the last Job."""
    cause = updates.NESTEROV() if job == JOBS[-1] else NAN_KEPT
    raise Finding(Diagnosis("got 2, but should be 1", (cause,)))


def test_a_failing_job_of_a_known_cause_counts_as_passed() -> None:
    with Session(minimal_adapter.adapter, 2) as session:
        session.known = KnownCauses(frozenset({NAN_KEPT.id}))
        with pytest.raises(Finding) as found:
            for_each(session, JOBS, judge)
    assert found.value.job == JOBS[-1]


def test_a_search_ends_when_its_time_is_up() -> None:
    with Session(minimal_adapter.adapter, 2) as session:
        session.known = KnownCauses(frozenset({NAN_KEPT.id}), until=0.0)
        for_each(session, JOBS, judge)
        assert 0 < session.jobs_run < len(JOBS)


@pytest.mark.parametrize(("share", "causes"), [(0.0, {NOT_REDUCED.id}), (1000.0, {NOT_REDUCED.id, NAN_KEPT.id})])
def test_a_hidden_fault_is_told_by_searching_on(
    share: float, causes: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(second_causes, "_SHARE", share)
    faults = alone()
    pair = reference([faults["gradients_times_zero"], faults["reduced_in_a_group_of_one"]])
    checks = "gradients_equal", "are_the_mean_of_local", "uneven_batches_count", "check_zero_grad"
    verdicts = list(run_checks(pair, [2], checks, settings=Settings(profile_named("quick"))))
    assert {identity_of(verdict)[0] for verdict in verdicts if not verdict.ok} == causes
