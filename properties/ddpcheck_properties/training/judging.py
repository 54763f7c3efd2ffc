"""The judge of a Job with one training run."""

from __future__ import annotations

from collections.abc import Callable

from ddpcheck import assertions
from ddpcheck.contract import Capabilities
from ddpcheck.hypotheses.training.early_stopping import stops_by_own_loss
from ddpcheck.job import Job
from ddpcheck.oracle.training_runs import Run, plan_of
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from ..drawing import Judge


def of_run(promised: Capabilities, *judges: Callable[[Run], None]) -> Judge:
    """The run ended on all ranks, and each of `judges` passes it."""

    def judge(job: Job, trace: Trace) -> None:
        try:
            assertions.completed(trace)
        except Finding as finding:
            raise finding.blaming(stops_by_own_loss(plan_of(job)) or finding.diagnosis.causes) from None
        run = Run.told(job, trace, promised)
        for one in judges:
            one(run)

    return judge
