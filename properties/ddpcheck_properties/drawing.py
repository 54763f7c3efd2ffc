"""Runs a check over many drawn Jobs: Hypothesis draws and shrinks, the session runs, and the check's `judge` reads the
Trace.

Jobs are drawn in the driver only, and are the same in every run unless the session has a random seed. All Jobs are
drawn first, and several run at once, so the ranks work while the driver judges. If one fails, Hypothesis draws again up
to that Job and makes it smaller. The verdict on each Job is stored, so that a rank that is slow or dead once does not
make the test look flaky to Hypothesis.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import SearchStrategy

from ddpcheck import assertions
from ddpcheck.contract import Capabilities
from ddpcheck.hypotheses.failed_ranks import right_when_repeated
from ddpcheck.job import Job, Observe, Operation, OptimizerSpec, Predict, Step, ZeroGrad
from ddpcheck.running.implied_causes import adds_to
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from .collectives.earlier_groups import group_kept_before, with_earlier_group
from .judges import Judge, noting
from .one_parameter import NOTE, may_hide_others, with_one_parameter
from .wire.sent_in_backward import with_bytes_sent

if TYPE_CHECKING:
    from ddpcheck.session import Session

Shorter = Callable[[Job], Iterable[Job]]
"""Smaller Jobs that may show the same failure."""

_HEALTH: Any = list(HealthCheck)  # its metaclass hides from type checkers that these are HealthChecks

FURTHER_SECONDS, FURTHER_JOBS, ONE_PARAMETER_JOBS = 10.0, 40, 8
"""The most seconds and Jobs for a search for a cause that no other check has told: a second on an idle machine."""
SHRINKING_SECONDS = 3.0
"""Seconds for making a failing Job smaller; a failing check should report soon."""


@dataclass(frozen=True)
class Further:
    """How to look for another cause in the Jobs of a check.

    prepared: the Job to run in place of a Job; None if it cannot be judged. judge: raises a Finding with another cause.
    most: of these Jobs.
    """

    prepared: Callable[[Job, Capabilities], Job | None]
    judge: Judge
    most: int = FURTHER_JOBS


def has_time_for_long_jobs(session: Session) -> bool:
    """Whether there is time for long Jobs: in profiles that draw more than a hundred, and in the deep profile."""
    return session.effort > 100 or session.deep


def runs_all_jobs(session: Session) -> bool:
    """Whether all given Jobs run at this world size. Short profiles run fewer above three ranks, where Jobs cost most."""
    return session.world_size <= 3 or session.effort > 20


def all_or_every_second(session: Session, jobs: Iterable[Job]) -> list[Job]:
    """All Jobs, or every second one if not all run."""
    return list(jobs)[:: 1 if runs_all_jobs(session) else 2]


def for_all(
    session: Session,
    strategy: SearchStrategy[Job],
    judge: Judge,
    *,
    examples: Iterable[Job] = (),
    shorter: Shorter | None = None,
    clearer: Shorter | None = None,
    share: float = 1.0,
    further: Further | None = None,
) -> None:
    """Raise the Finding of the smallest failing Job found, with `job` set.

    examples: Jobs for known pitfalls, run first, and made smaller only by `shorter`; a failing example is replaced by
    the first Job of `clearer` that also fails. share: of the session's effort (number of drawn Jobs). further: if other
    checks have told the cause, another one is looked for in these Jobs.
    """
    examples = tuple(examples)
    for_each(session, examples, judge, shorter, clearer, further)
    if session.replayed is not None or strategy.is_empty:
        return
    search = _Search(session, judge)
    drawn = 1 if session.brief else max(1, round(session.effort * share))

    @settings(
        max_examples=drawn,
        derandomize=session.random_seed is None,
        database=None,
        deadline=None,
        suppress_health_check=_HEALTH,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        print_blob=False,
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
    )
    @given(strategy.map(lambda job: within_promises(job, session.capabilities)))
    def run(job: Job) -> None:
        search.try_one(job)

    draw = run if session.random_seed is None else seed(session.random_seed)(run)
    with suppress(Unsatisfiable):  # no Job fits the promises
        draw()  # the Jobs are only recorded, so all pass
    finding = search.first_failing(search.drawn)
    if finding is None:
        return
    search.raise_further(finding, (*examples, *search.drawn), further)
    # a hang costs a deadline, a dead rank a restart: one is enough
    if not search.lost_a_rank and _makes_smaller(session):
        finding = _observed_further(session, search.confirmed(search.smallest(draw)))
    raise finding


def for_each(
    session: Session,
    jobs: Iterable[Job],
    judge: Judge,
    shorter: Shorter | None = None,
    clearer: Shorter | None = None,
    further: Further | None = None,
) -> None:
    """Raise the Finding of the first failing Job, with `job` set.

    clearer: the first of these that also fails replaces it. shorter: then the last failing Job that these lead to.
    further: if other checks have told the cause, another one is looked for in these Jobs.
    """
    replayed, promised = session.replayed, session.capabilities
    chosen = [within_promises(job, promised) for job in jobs] if replayed is None else [replayed]
    search = _Search(session, judge)
    finding = search.first_failing(chosen)
    if finding is None:
        return
    search.raise_further(finding, chosen, further)
    if not _makes_smaller(session):
        raise finding
    if replayed is None and shorter is not None:
        finding = search.shortened(search.made_clear(finding, clearer) if clearer else finding, shorter)
    elif replayed is None and not finding.diagnosis.cause:
        finding = search.confirmed(finding)
    raise _observed_further(session, finding)


def _observed_further(session: Session, finding: Finding) -> Finding:
    """The finding, with what other Jobs show of its cause."""
    return with_earlier_group(session, with_bytes_sent(session, finding))


def _makes_smaller(session: Session) -> bool:
    return session.shrinks and not session.brief


def within_promises(job: Job, promised: Capabilities) -> Job:
    """The Job within the adapter's promises: its dtype, its optimizer if it takes steps, and predictions on all ranks
    if one rank cannot predict alone.

    A Job whose sums are exact only in float64 is judged by bounds if only float32 is promised.
    """
    if (
        job.model is not None
        and promised.replica.replica_dtypes
        and job.model.dtype not in promised.replica.replica_dtypes
    ):
        job = replace(job, model=replace(job.model, dtype=max(promised.replica.replica_dtypes)))
    steps = any(isinstance(operation, Step) for operation in job.operations)
    if (
        job.model is not None
        and not steps
        and promised.replica.optimizers
        and job.optimizer.name not in promised.replica.optimizers
    ):
        job = replace(job, optimizer=OptimizerSpec("adam" if "adam" in promised.replica.optimizers else "sgd"))
    if promised.replica.step_zeroes_gradients:
        job = replace(job, operations=tuple(_zeroed_after_steps(job.operations)))
    if not promised.replica.predicts_alone:
        job = replace(job, operations=tuple(map(_by_all_ranks, job.operations)))
    return job


def _zeroed_after_steps(operations: Sequence[Operation]) -> Iterator[Operation]:
    """Insert a ZeroGrad after each step, before the next operation that could read gradients."""
    stepped = False
    for operation in operations:
        sees = not isinstance(operation, Observe) or "gradients" in operation.what
        if stepped and sees:
            if operation != ZeroGrad():
                yield ZeroGrad()
            stepped = False
        stepped = stepped or isinstance(operation, Step)
        yield operation


def _by_all_ranks(operation: Operation) -> Operation:
    if not isinstance(operation, Predict) or not any(operation.samples):
        return operation
    given = next(filter(None, operation.samples))
    return replace(operation, samples=tuple(own or given for own in operation.samples))


class _Failing(Exception):
    """A Job failed. try_one raises all of them in one line, its last, because Hypothesis distinguishes failures by
    their line.
    """

    def __init__(self, finding: Finding) -> None:
        self.finding = finding


class _Enough(BaseException):
    """Stop drawing and shrinking. Not an Exception, so Hypothesis does not take it for a failure to shrink."""


class Drawn(list[Job]):
    """Drawn Jobs, which a session may distinguish from those that are the same in every run."""


class _Search:
    """The results of the Jobs seen so far."""

    def __init__(self, session: Session, judge: Judge) -> None:
        self.session, self.judge = session, judge
        self.drawn = Drawn()
        self.passed: set[Job] = set()
        self.failing: dict[Job, Finding] = {}
        self.latest: Finding | None = None  # shrinking goes only from a failing Job to smaller ones
        self.crash: Exception | None = None
        self.lost_a_rank = False
        self.until = float("inf")

    def first_failing(self, jobs: Sequence[Job]) -> Finding | None:
        """Run the Jobs, several at once, up to the first that fails."""
        with closing(self.session.run_many(jobs)) as traces:
            for number, (job, trace) in enumerate(zip(jobs, traces, strict=False)):
                finding = self.verdict(job, trace)
                if finding is not None:
                    self.passed.update(jobs[:number])
                    self.latest = self.failing[job] = finding
                    return finding
        return None

    def raise_further(self, finding: Finding, jobs: Iterable[Job], further: Further | None) -> None:
        """Raise a Finding with a cause that no other check has told, if the cause of this one is told."""
        session = self.session
        if session.replayed is not None or self.lost_a_rank or adds_to(session.told, finding.diagnosis.causes):
            return
        if may_hide_others(finding):
            self._raise_other(jobs, Further(_of_one_parameter, noting(self.judge, NOTE), ONE_PARAMETER_JOBS))
        if further is not None:
            self._raise_other(jobs, further)

    def _raise_other(self, jobs: Iterable[Job], further: Further) -> None:
        """Raise the first Finding of this search with a cause that no other check has told."""
        session = self.session
        until = time.monotonic() + FURTHER_SECONDS
        search = _Search(session, further.judge)
        prepared = list(filter(None, (further.prepared(job, session.capabilities) for job in jobs)))[: further.most]
        with closing(session.run_many(prepared)) as traces:
            for job, trace in zip(prepared, traces, strict=False):
                found = search.verdict(job, trace)
                if found is not None and trace.completed and adds_to(session.told, found.diagnosis.causes):
                    raise found
                if search.lost_a_rank or time.monotonic() > until:
                    return

    def smallest(self, draw: Callable[[], object]) -> Finding:
        """The Finding of the smallest failing Job that Hypothesis reaches from the first one."""
        self.until = time.monotonic() + SHRINKING_SECONDS
        try:
            draw()
        except _Failing as failing:
            return failing.finding
        except _Enough:
            if self.crash is not None:
                raise self.crash from None
        assert self.latest is not None
        return self.latest

    def made_clear(self, finding: Finding, clearer: Shorter) -> Finding:
        """The Finding of the first of these Jobs that fails, with any cause."""
        jobs = () if self.lost_a_rank else clearer(_failing_job(finding))
        found = (self.failure(within_promises(job, self.session.capabilities)) for job in jobs)
        return next(filter(None, found), finding)

    def shortened(self, finding: Finding, shorter: Shorter) -> Finding:
        """The Finding of the shortest Job that fails for the same cause, among those that `shorter` yields."""
        self.until = time.monotonic() + SHRINKING_SECONDS
        left = iter(shorter(_failing_job(finding)))
        while not self.lost_a_rank and time.monotonic() < self.until and (job := next(left, None)) is not None:
            found = self.failure(within_promises(job, self.session.capabilities))
            if found is not None and _first_cause(found) == _first_cause(finding):
                finding, left = found, iter(shorter(job))
        return finding

    def try_one(self, job: Job) -> None:
        """Try one draw: returns, or raises _Failing or _Enough."""
        if not self.failing:
            self.drawn.append(job)
            return
        finding = self.failing.get(job) or self._new(job)
        if finding is not None:
            raise _Failing(finding)

    def _new(self, job: Job) -> Finding | None:
        if job in self.passed:
            return None
        if time.monotonic() > self.until:
            raise _Enough
        try:
            finding = self.failure(job)
        except Exception as error:  # a check that crashes is no failing Job, so there is nothing to shrink
            self.crash = error
            raise _Enough from None
        if finding is not None:
            self.latest = self.failing[job] = finding
            if self.lost_a_rank:
                raise _Enough
        return finding

    def failure(self, job: Job) -> Finding | None:
        """The judge's findings on one run of this Job."""
        return self.verdict(job, self.session.run(job))

    def verdict(self, job: Job, trace: Trace) -> Finding | None:
        """The judge's findings on this Trace of the Job."""
        try:
            self.judge(job, trace)
        except Finding as found:
            finding = found if trace.completed else assertions.explained(found, job, trace)
            finding.job = job
            self.lost_a_rank = any(rank.outcome in ("hung", "died") for rank in trace.ranks)
            return finding
        return None

    def confirmed(self, finding: Finding) -> Finding:
        """The finding, with a note whether its Job fails again."""
        if self.lost_a_rank or finding.job is None or self.failure(finding.job) is not None:
            return finding
        sure = finding.diagnosis.causes
        note = "not reproduced when run again: it depends on state, or on timing, as where a handle is not waited for"
        earlier = group_kept_before(self.session, finding.job)
        return finding.blaming(earlier, sure, right_when_repeated(sure)).noting(note)


def _of_one_parameter(job: Job, promised: Capabilities) -> Job | None:
    made = with_one_parameter(job)
    return made and within_promises(made, promised)


def _failing_job(finding: Finding) -> Job:
    assert finding.job is not None
    return finding.job


def _first_cause(finding: Finding) -> str:
    cause = finding.diagnosis.cause
    return cause.id if cause is not None else ""
