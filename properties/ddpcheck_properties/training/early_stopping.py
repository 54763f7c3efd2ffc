"""Training runs that stop when the loss no longer decreases: on all ranks after the same epoch; otherwise some wait for
ever.
"""

from __future__ import annotations

from dataclasses import replace

from ddpcheck import assertions
from ddpcheck.checks import law
from ddpcheck.contract import Capabilities, needs
from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.ordered_hypotheses.training import OF_ANOTHER_STOP
from ddpcheck.hypotheses.training.early_stopping import OtherStop
from ddpcheck.job import Job, Train
from ddpcheck.oracle.training_runs import lasts, plan_of
from ddpcheck.session import Session
from ddpcheck.trace import Trace

from ..drawing import all_or_every_second, for_each
from .drawn_runs import equal_losses, run_job
from .final_state import ends_where_one_process_ends
from .judging import of_run, run_completed
from .learning_rates import rates_follow
from .losses import reports_the_loss

_EPOCHS = 8


@law("trainer", needs.trainer, needs.replica.optimizers("sgd"), needs.trainer.trainer_features("early_stopping"))
def check_early_stopping_ends_all_ranks_together(session: Session) -> None:
    """A run with patience p ends on all ranks after the first p consecutive epochs without a new lowest loss over all ranks,
    not earlier or later. An epoch with a loss of NaN or infinity has no new lowest loss.
    """
    world, promised = session.world_size, session.capabilities
    # rates so large that the loss rises and falls, differently on some ranks; and two smaller rates, the lower of which
    # reduces the loss by some 1e-5
    rates = ((0, 1.0, 1), (1, 1.0, 2), (2, 1.0, 3), (3, 1.5, 1), (4, 2.0, 2), (6, 1.0, 2), (11, 0.5, 3), (5, 0.05, 3))
    jobs = [
        run_job(world, promised, 3 * world, Train(_EPOCHS, seed=seed, patience=patience), seed=seed, lr=rate)
        for seed, rate, patience in (*rates, (7, 1e-5, 1))
    ]
    jobs += equal_losses(world, promised, Train(_EPOCHS, batch_size=3, patience=2))
    jobs += _with_other_features(world, promised)
    for_each(session, all_or_every_second(session, jobs), _ends_in_time)
    diverging = run_job(world, promised, 3 * world, Train(_EPOCHS, batch_size=3, patience=2), lr=1e200)
    for_each(session, [diverging], _ends_in_time)
    # one of each patience; the last has all its epochs, so that late epochs with a short batch are checked, too
    looked_at = [jobs[0], jobs[2], replace(jobs[1], optimizer=replace(jobs[1].optimizer, lr=1e-5))]
    for_each(
        session,
        all_or_every_second(session, looked_at),
        of_run(promised, ends_where_one_process_ends, reports_the_loss, rates_follow),
    )


def _with_other_features(world_size: int, promised: Capabilities) -> list[Job]:
    """A run that ends early with micro-batches and a schedule, if promised, and one that does not shuffle."""
    plan = Train(_EPOCHS, seed=1, patience=2)
    ways = {
        "accumulation": replace(plan, batch_size=1, micro_batches=2),
        "schedule": replace(plan, schedule="linear"),
        "": replace(plan, shuffle=False),
    }
    offered = [way for feature, way in ways.items() if feature in promised.trainer.trainer_features | {""}]
    return [run_job(world_size, promised, 3 * world_size, each, seed=each.seed, lr=1.0) for each in offered]


def _ends_in_time(job: Job, trace: Trace) -> None:
    run_completed(job, trace)
    plan = plan_of(job)
    reported: list[list[float]] = trace.values(0, "losses")
    wanted = min(lasts(reported[0], plan.patience or plan.epochs), plan.epochs)
    shown = ", ".join(f"{loss:.4g}" for loss in reported[0])
    for rank, losses in enumerate(reported):
        assertions.that(
            len(losses) == wanted,
            f"rank {rank} stopped after {len(losses)} epochs with losses {shown}, but should stop after {wanted} with patience "
            f"{plan.patience}",
            first_cause(OF_ANOTHER_STOP, OtherStop(len(losses), reported[0], plan)),
        )
