"""Training runs that end when the loss gets no lower: on all ranks after the same epoch, or those that go on wait for ever."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from ddpcheck import expect
from ddpcheck.checks import law
from ddpcheck.contract import Capabilities, needs
from ddpcheck.job import Job, Train
from ddpcheck.session import Session
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from ..drawing import fewer, for_each
from .drawn_runs import equal_losses, plan_of, run_job
from .ends import ends_where_one_process_ends
from .judges import APART, of_run
from .losses import tells_the_loss
from .rates import rates_follow

_EPOCHS = 8
_NEVER = "it does not end by the loss of all ranks that it tells: by another one, or by none"


@law("trainer", needs.trainer, needs.replica.optimizers("sgd"), needs.trainer.trainer_features("early_stopping"))
def check_early_stopping_ends_all_ranks_together(session: Session) -> None:
    """A run with patience ends on all ranks after the first epoch with which so many in a row had no lower loss than the lowest
    before them, where loss is that of all ranks: not an epoch sooner or later, and not at all while it gets lower.
    """
    world, promised = session.world_size, session.capabilities
    # rates so large that the loss goes up and down, on some ranks otherwise than on others; and two that are not, of which the
    # smaller one lowers it by some 1e-5
    rates = ((0, 1.0, 1), (1, 1.0, 2), (2, 1.0, 3), (3, 1.5, 1), (4, 2.0, 2), (6, 1.0, 2), (11, 0.5, 3), (5, 0.05, 3))
    jobs = [
        run_job(world, promised, 3 * world, Train(_EPOCHS, seed=seed, patience=patience), seed=seed, lr=rate)
        for seed, rate, patience in (*rates, (7, 1e-5, 1))
    ]
    jobs += equal_losses(world, promised, Train(_EPOCHS, batch_size=3, patience=2))
    jobs += _with_other_features(world, promised)
    for_each(session, fewer(session, jobs), _ends_in_time)
    # one of each patience, of which the last has all its epochs: else nobody looks at the late epochs of a short batch
    looked_at = [jobs[0], jobs[2], replace(jobs[1], optimizer=replace(jobs[1].optimizer, lr=1e-5))]
    for_each(
        session, fewer(session, looked_at), of_run(promised, ends_where_one_process_ends, tells_the_loss, rates_follow)
    )


def _with_other_features(world_size: int, promised: Capabilities) -> list[Job]:
    """A run that ends early with micro-batches and a schedule, as far as they are promised, and one that does not shuffle."""
    plan = Train(_EPOCHS, seed=1, patience=2)
    ways = {
        "accumulation": replace(plan, batch_size=1, micro_batches=2),
        "schedule": replace(plan, schedule="linear"),
        "": replace(plan, shuffle=False),
    }
    offered = [way for feature, way in ways.items() if feature in promised.trainer.trainer_features | {""}]
    return [run_job(world_size, promised, 3 * world_size, each, seed=each.seed, lr=1.0) for each in offered]


def _ends_in_time(job: Job, trace: Trace) -> None:
    try:
        expect.completed(trace)
    except Finding as finding:
        raise finding.blaming(APART) from None
    plan = plan_of(job)
    told: list[list[float]] = trace.values(0, "losses")
    for rank, losses in enumerate(told):
        wanted = lasts(told[0], plan.patience or plan.epochs)
        expect.that(
            len(losses) == min(wanted, plan.epochs),
            f"rank {rank} ended its run after {len(losses)} epochs with the losses {', '.join(f'{x:.4g}' for x in told[0])}, but "
            f"should end it after {min(wanted, plan.epochs)} with patience {plan.patience}",
            _too_soon_or_late(len(losses), told[0], plan),
        )


def lasts(losses: Sequence[float], patience: int, lower: Callable[[float, float], bool] = operator.lt) -> float:
    """How many epochs a run with these losses lasts; infinity if nothing in them ends it."""
    lowest, since = math.inf, 0
    for epoch, loss in enumerate(losses, start=1):
        lowest, since = (loss, 0) if lower(loss, lowest) else (lowest, since + 1)
        if since >= patience:
            return epoch
    return math.inf


def _too_soon_or_late(epochs: int, losses: Sequence[float], plan: Train) -> str:
    """By what other rule a run with these losses would end there."""
    patience = plan.patience or plan.epochs
    rules = {
        "a loss that equals the lowest is taken for lower: the count begins anew": lasts(losses, patience, operator.le),
        "it has patience for one epoch more: the count begins at the lowest loss, or is compared by >": lasts(
            losses, patience + 1
        ),
        "it has patience for one epoch less: the epoch of the lowest loss itself counts": lasts(losses, patience - 1),
        "it looks at the epoch before, not at the lowest loss": _rises(losses, patience),
        "it counts all epochs that were no better, not those in a row": _in_all(losses, patience),
        "an epoch whose loss is lower by little counts as no better": lasts([round(x, 3) for x in losses], patience),
    }
    fitting = [words for words, end in rules.items() if epochs == min(end, plan.epochs) and epochs < plan.epochs]
    if epochs == plan.epochs and losses.count(min(losses)) > 1 and lasts(losses, patience, operator.le) > epochs:
        return next(iter(rules))
    if epochs == plan.epochs < _rises(losses, patience):
        return f"{_NEVER}; or it looks at the epoch before, not at the lowest loss"
    return "; or ".join(fitting) or _NEVER


def _in_all(losses: Sequence[float], patience: int) -> float:
    """After how many epochs so many in all had no lower loss than the lowest before them."""
    since, lowest = 0, math.inf
    for epoch, loss in enumerate(losses, start=1):
        since += loss >= lowest
        lowest = min(lowest, loss)
        if since >= patience:
            return epoch
    return math.inf


def _rises(losses: Sequence[float], patience: int) -> float:
    """After how many epochs the loss was so often in a row no lower than in the epoch before."""
    since = 0
    for epoch, (before, loss) in enumerate(pairwise(losses), start=2):
        since = since + 1 if loss >= before else 0
        if since >= patience:
            return epoch
    return math.inf
