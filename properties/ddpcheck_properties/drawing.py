"""Run a check over many drawn Jobs: Hypothesis draws and shrinks, the session runs, the check's `judge` looks at the
Trace.

Draws happen in the driver only, and are the same in every run unless the session has a random seed. What Hypothesis
sees of a Job is remembered, so that a rank that is slow once, or dead, never looks to it like a test that cannot make
up its mind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.errors import UnsatisfiedAssumption
from hypothesis.strategies import SearchStrategy

from ddpcheck.capabilities import Capabilities
from ddpcheck.job import Job, OptimizerSpec, Step
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from .incomplete import explained

if TYPE_CHECKING:
    from ddpcheck.session import Session

Judge = Callable[[Job, Trace], None]

_HEALTH: Any = list(HealthCheck)  # its metaclass hides from type checkers that these are HealthChecks

SHRINKING_SECONDS = 3.0
"""How long a failing Job may be made smaller. A check that fails should say so while the user still looks."""


def for_all(
    session: Session, strategy: SearchStrategy[Job], judge: Judge, *, examples: Iterable[Job] = (), share: float = 1.0
) -> None:
    """Raise the Finding of the smallest failing Job found, with `job` set.

    examples: Jobs for known pitfalls, run first and not shrunk. share: of the session's effort (number of drawn Jobs).
    """
    for_each(session, examples, judge)
    if _replayed(session) is not None:
        return
    search = _Search(session, judge)
    drawn = max(1, round(session.effort * share))

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

    smallest = None
    try:
        (run if session.random_seed is None else seed(session.random_seed)(run))()
    except _Failing as failing:
        smallest = failing.finding
    except _Enough:
        smallest = search.latest
    if search.crash is not None:
        raise search.crash
    if smallest is not None:
        raise search.confirmed(smallest) from None


def for_each(session: Session, jobs: Iterable[Job], judge: Judge) -> None:
    """Raise the Finding of the first failing Job, with `job` set."""
    search = _Search(session, judge)
    replayed = _replayed(session)
    promised = session.capabilities
    pending = [within_promises(job, promised) for job in jobs] if replayed is None else [replayed]
    while pending:
        traces = _until_one_fails(session, pending)
        for job, trace in zip(pending, traces, strict=False):
            finding = search.verdict(job, trace)
            if finding is not None:
                raise finding
        del pending[: len(traces)]


def within_promises(job: Job, promised: Capabilities) -> Job:
    """The Job in a dtype that replicas can compute in and, if it takes no step, with an optimizer that they can build.

    A Job whose sums are exact in float64 only is judged by bounds where float32 is all that there is.
    """
    if job.model is not None and promised.replica_dtypes and job.model.dtype not in promised.replica_dtypes:
        job = replace(job, model=replace(job.model, dtype=max(promised.replica_dtypes)))
    steps = any(isinstance(operation, Step) for operation in job.operations)
    if job.model is not None and not steps and promised.optimizers and job.optimizer.name not in promised.optimizers:
        job = replace(job, optimizer=OptimizerSpec("adam" if "adam" in promised.optimizers else "sgd"))
    return job


def _until_one_fails(session: Session, jobs: Iterable[Job]) -> list[Trace]:
    """Traces of the first Jobs, run together; none beyond one that did not complete, which may have cost a deadline."""
    traces: list[Trace] = []
    with closing(session.run_many(jobs)) as running:
        for trace in running:
            traces.append(trace)
            if not trace.completed:
                break
    return traces


def _replayed(session: Session) -> Job | None:
    """The one Job that the session is there for (ddpcheck.replay), instead of all that would be drawn."""
    job: Job | None = getattr(session, "replay_job", None)
    return job


class _Failing(Exception):
    """A Job failed. Hypothesis tells failures apart by where they were raised: all come from one line, try_one's
    last.
    """

    def __init__(self, finding: Finding) -> None:
        self.finding = finding


class _Enough(BaseException):
    """Stop drawing and shrinking. No Exception, so that Hypothesis does not take it for a failure to shrink."""


class _Search:
    """What is known of the Jobs seen so far."""

    def __init__(self, session: Session, judge: Judge) -> None:
        self.session, self.judge = session, judge
        self.failing: dict[Job, Finding] = {}
        self.latest: Finding | None = None  # shrinking goes from a failing Job to smaller ones only
        self.crash: Exception | None = None
        self.lost_a_rank = False
        self.until = float("inf")

    def failure(self, job: Job) -> Finding | None:
        """What the judge says of one run of this Job."""
        prepare = getattr(self.judge, "prepare", None)  # what a judge can work out while the ranks are at work
        return self.verdict(job, self.session.run(job, prepare))

    def verdict(self, job: Job, trace: Trace) -> Finding | None:
        """What the judge says of this Trace of the Job."""
        try:
            self.judge(job, trace)
        except Finding as found:
            finding = found if trace.completed else explained(found, job, trace)
            finding.job = job
            self.lost_a_rank = any(rank.outcome in ("hung", "died") for rank in trace.ranks)
            return finding
        return None

    def try_one(self, job: Job) -> None:
        """One draw: quiet, or raises _Failing, or _Enough."""
        finding = self.failing.get(job) or self._new(job)
        if finding is not None:
            raise _Failing(finding)

    def _new(self, job: Job) -> Finding | None:
        if time.monotonic() > self.until:
            raise _Enough
        try:
            finding = self.failure(job)
        except UnsatisfiedAssumption:
            raise
        except Exception as error:  # a check that crashes is no failing Job: nothing to shrink
            self.crash = error
            raise _Enough from None
        if finding is not None:
            if self.latest is None:
                self.until = time.monotonic() + SHRINKING_SECONDS
            self.latest = self.failing[job] = finding
            if self.lost_a_rank:  # a hang costs a deadline, a dead rank a restart: one is enough
                raise _Enough
        return finding

    def confirmed(self, finding: Finding) -> Finding:
        """The finding, with a word on whether its Job fails again."""
        if self.lost_a_rank or finding.job is None or self.failure(finding.job) is not None:
            return finding
        note = "not reproduced when run again: timing or state dependent"
        noted = Finding(replace(finding.diagnosis, details=(*finding.diagnosis.details, note)))
        noted.job = finding.job
        return noted
