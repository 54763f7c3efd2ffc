"""The judge of a Job with one training run."""

from __future__ import annotations

from collections.abc import Callable

from ddpcheck import assertions
from ddpcheck.causes.cause import as_causes
from ddpcheck.contract import Capabilities
from ddpcheck.hypotheses.training.early_stopping import stops_by_own_loss
from ddpcheck.job import Job
from ddpcheck.oracle.training_runs import Run, plan_of
from ddpcheck.trace import Trace

from ..judges import Judge
from .final_state import explained


def of_run(promised: Capabilities, *judges: Callable[[Run], None]) -> Judge:
    """The run ended on all ranks, and each of `judges` passes it."""

    def judge(job: Job, trace: Trace) -> None:
        run_completed(job, trace)
        run = Run.told(job, trace, promised)
        for one in judges:
            one(run)

    return judge


def run_completed(job: Job, trace: Trace) -> None:
    """The run ended on all ranks; if not, ranks may have stopped by their own losses."""
    with explained(lambda: as_causes(stops_by_own_loss(plan_of(job)))):
        assertions.completed(trace)
