"""for_all: finds the smallest failing Job, tries a hang only once, reports a crash unchanged, and hides Hypothesis's
messages about flaky tests.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import find
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from ddpcheck import assertions
from ddpcheck.causes import Cause, ranks, updates
from ddpcheck.contract import TYPICAL, Capabilities
from ddpcheck.job import Barrier, Job
from ddpcheck.trace import RankTrace, Trace
from ddpcheck.verdict import Diagnosis, Finding
from ddpcheck_properties import drawing
from ddpcheck_properties import strategies_collectives as drawn_from
from ddpcheck_properties.drawing import Further, all_or_every_second, for_all
from ddpcheck_properties.judges import Judge
from ddpcheck_properties.strategies import choice


@dataclass
class Hollow:
    """A session whose Jobs return at once: done, or hung if their seed is at least `hangs_from`."""

    capabilities: Capabilities = field(default_factory=Capabilities)
    world_size: int = 1
    effort: int = 50
    deep: bool = False
    random_seed: int | None = None
    hangs_from: int = 10_000
    brief: bool = False
    told: frozenset[str] = frozenset()
    shrinks: bool = True
    replayed: Job | None = None
    run_jobs: list[Job] = field(default_factory=list)

    def run_many(self, jobs: Iterable[Job]) -> Generator[Trace, None, None]:
        return (self.run(job) for job in jobs)

    def run(self, job: Job) -> Trace:
        self.run_jobs.append(job)
        return Trace((RankTrace(0, "hung" if job.seed >= self.hangs_from else "done", ()),), 1.0)


@st.composite
def jobs(draw: DrawFn) -> Job:
    return Job(1, (Barrier(),) * draw(st.integers(1, 4)), seed=draw(st.integers(0, 1000)))


def seed_is_small(job: Job, trace: Trace) -> None:
    assertions.that(job.seed <= 50, f"seed {job.seed}")


def failure(session: Hollow, judge: Judge, **options: object) -> Finding:
    with pytest.raises(Finding) as caught:
        for_all(session, jobs(), judge, **options)  # type: ignore[arg-type]
    return caught.value


def test_effort_sets_the_number_of_judged_jobs() -> None:
    session = Hollow(effort=40)
    for_all(session, jobs(), lambda job, trace: None, share=0.5)  # type: ignore[arg-type]
    assert len(session.run_jobs) == 20


def test_the_finding_is_that_of_the_smallest_job() -> None:
    finding = failure(Hollow(), seed_is_small)
    assert finding.job == Job(1, (Barrier(),), seed=51)
    assert finding.diagnosis.headline == "seed 51"


def test_a_brief_session_draws_one_job_and_shrinks_nothing() -> None:
    session = Hollow(effort=40, brief=True)
    finding = failure(session, lambda job, trace: assertions.that(False, "always"))
    assert session.run_jobs == [finding.job]


def test_drawing_is_the_same_each_time_and_another_with_a_random_seed() -> None:
    seen = []
    for random_seed in (None, None, 1, 2):
        session = Hollow(random_seed=random_seed)
        for_all(session, jobs(), lambda job, trace: None)  # type: ignore[arg-type]
        seen.append([job.seed for job in session.run_jobs])
    assert seen[0] == seen[1] != seen[2] != seen[3]


def test_examples_come_first() -> None:
    session = Hollow()
    example = Job(1, (Barrier(),) * 3, seed=99)
    assert failure(session, seed_is_small, examples=[example]).job == example
    assert session.run_jobs == [example] * 2  # found, and confirmed, because no cause is known


@pytest.mark.parametrize(("world_size", "effort", "seeds"), [(3, 9, [0, 1, 2]), (4, 5, [0, 2]), (4, 60, [0, 1, 2])])
def test_more_than_three_ranks_run_every_second_example(world_size: int, effort: int, seeds: list[int]) -> None:
    session = Hollow(world_size=world_size, effort=effort)
    given = [Job(world_size, (Barrier(),), seed=seed) for seed in range(3)]
    assert [job.seed for job in all_or_every_second(session, given)] == seeds  # type: ignore[arg-type]


def test_an_example_that_is_right_when_run_again_depends_on_timing() -> None:
    seen: list[Job] = []

    def wrong_once(job: Job, trace: Trace) -> None:
        seen.append(job)
        if len(seen) == 1:
            raise Finding(Diagnosis("wrong once"))

    finding = failure(Hollow(), wrong_once, examples=[Job(1, (Barrier(),))])
    assert finding.diagnosis.causes == (ranks.RIGHT_WHEN_REPEATED(),)


def test_an_example_gets_shorter_while_its_cause_stays() -> None:
    def judge(job: Job, trace: Trace) -> None:
        count = len(job.operations)
        if count:
            cause = ranks.ALL_WAIT_IN_ONE_OPERATION() if count > 1 else ranks.CLOSE_WAITS()
            raise Finding(Diagnosis(f"{count} barriers", (cause,)))

    def shorter(job: Job) -> Iterator[Job]:
        yield Job(1, ())  # which passes
        yield Job(1, job.operations[1:])

    finding = failure(Hollow(), judge, examples=[Job(1, (Barrier(),) * 5)], shorter=shorter)
    assert finding.diagnosis.headline == "2 barriers"
    assert finding.job == Job(1, (Barrier(),) * 2)


def test_a_hang_is_seen_once() -> None:
    session = Hollow(hangs_from=51)
    finding = failure(session, lambda job, trace: assertions.completed(trace))
    assert finding.hung
    assert sum(job.seed >= 51 for job in session.run_jobs) == 1


def test_failure_that_does_not_recur_is_reported_with_a_note() -> None:
    calls = []

    def seventh(job: Job, trace: Trace) -> None:
        calls.append(job)
        assertions.that(len(calls) != 7, "the seventh")

    finding = failure(Hollow(), seventh)
    assert finding.job == calls[6]
    assert "not reproduced when run again" in finding.diagnosis.text()
    assert "a handle is not waited for" in finding.diagnosis.text()


def test_a_check_that_crashes_is_no_finding() -> None:
    session = Hollow()
    with pytest.raises(ZeroDivisionError):
        for_all(session, jobs(), lambda job, trace: 1 // 0)  # type: ignore[arg-type]
    assert len(session.run_jobs) == 1


def test_shrinking_has_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "SHRINKING_SECONDS", -1.0)
    session = Hollow()
    finding = failure(session, seed_is_small)
    assert finding.job is not None
    failing = [job for job in session.run_jobs if job.seed > 50]
    assert failing == [finding.job] * 2  # found, and confirmed


def test_examples_run_even_if_nothing_can_be_drawn() -> None:
    alone = TYPICAL.of_facets("collectives").but(operations=frozenset({"send_recv"}))
    session = Hollow(alone)
    drawn = drawn_from.jobs(1, drawn_from.collectives(1, alone))
    for_all(session, drawn, lambda job, trace: None, examples=[Job(1, (Barrier(),))])  # type: ignore[arg-type]  # as above
    assert len(session.run_jobs) == 1


def test_a_choice_among_ranks_is_not_one_made_for_booleans() -> None:
    """Python treats booleans as equal to 0 and 1, but a root of True indexes an array differently from 1."""
    for values in ((False, True), (0, 1)):
        assert type(find(choice(values), bool)) is type(values[1])


LOST, OTHER = updates.MOMENTUM_MISSING(), updates.NESTEROV()


def blames(cause: Cause) -> Judge:
    def judge(job: Job, trace: Trace) -> None:
        raise Finding(Diagnosis(f"seed {job.seed}", (cause,)))

    return judge


def doubled(job: Job, promised: Capabilities) -> Job | None:
    """The Job, with its operations twice; None if its seed is even."""
    return replace(job, operations=job.operations * 2) if job.seed % 2 else None


@pytest.mark.parametrize("given", [True, False], ids=["examples", "drawn"])
def test_another_cause_is_looked_for_if_the_first_is_told(given: bool) -> None:
    further = Further(doubled, blames(OTHER))
    examples = [Job(1, (Barrier(),), seed=seed) for seed in (2, 3)] * given

    def told_after(*told: Cause, **changes: Any) -> tuple[Cause, ...]:
        session = Hollow(told=frozenset(cause.id for cause in told), **changes)
        found = failure(session, blames(LOST), examples=examples, further=further)
        assert found.job is not None
        assert len(found.job.operations) > 1 or OTHER not in found.diagnosis.causes
        return found.diagnosis.causes

    assert told_after(LOST) == (OTHER,)
    assert told_after() == told_after(OTHER) == told_after(LOST, OTHER) == (LOST,)
    if given:
        assert told_after(LOST, replayed=examples[1]) == (LOST,)


def test_no_other_cause_is_told_of_ranks_that_do_not_finish() -> None:
    further = Further(lambda job, promised: replace(job, seed=100), blames(OTHER))
    session = Hollow(told=frozenset({LOST.id}), hangs_from=100)
    found = failure(session, blames(LOST), examples=[Job(1, (Barrier(),), seed=1)], further=further)
    assert found.diagnosis.causes == (LOST,)
    assert [job.seed for job in session.run_jobs] == [1, 100]
