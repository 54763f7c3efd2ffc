"""Hypotheses about a training run that is resumed from a checkpoint."""

from __future__ import annotations

from functools import partial

from ...causes.cause import Kind
from ...causes.training import resumes as causes
from ...job import Train
from .emulation_rules import Lost, Rules, law_factor
from .whole_runs import Candidates


def wrong_resumes(plan: Train, epoch: int, world_size: int) -> Candidates:
    """State that may be missing in a run that was resumed after `epoch` epochs."""
    made = _schedules(plan, epoch) * (plan.schedule == "linear")
    for kind, lost in [*_LOST, *[_CLIPPING_LOST] * (plan.max_norm is not None)]:
        made.append((kind(ranks="all ranks"), Rules(lost=lost, resumed=epoch)))
        if world_size > 1:
            made.append((kind(ranks="all ranks but rank 0"), Rules(lost=lost, resumed=epoch, lost_on="others")))
        for rank in range(1, world_size) if world_size > 2 else ():
            made.append((kind(ranks=f"rank {rank}"), Rules(lost=lost, resumed=epoch, lost_on=rank)))
    return made


_LOST: list[tuple[Kind, frozenset[Lost]]] = [
    (causes.SCHEDULE_RESTARTS, frozenset({"schedule"})),
    (causes.LAST_STEP_NOT_SAVED, frozenset({"step"})),
    (causes.LAST_EPOCH_NOT_SAVED, frozenset({"epoch"})),
    (causes.RESUME_LOSES_OPTIMIZER, frozenset({"momentum"})),
    (causes.RESUME_LOSES_OPTIMIZER_AND_SCHEDULE, frozenset({"momentum", "schedule"})),
    (causes.RESUME_LOADS_EPOCH_ONLY, frozenset({"parameters", "momentum", "schedule"})),
    (causes.RESUME_LOSES_PARAMETERS, frozenset({"parameters"})),
    (causes.RESUME_LOADS_SCHEDULE_ONLY, frozenset({"parameters", "momentum"})),
]
_CLIPPING_LOST: tuple[Kind, frozenset[Lost]] = (causes.RESUME_LOSES_CLIPPING, frozenset({"clip"}))


def _schedules(plan: Train, epoch: int) -> Candidates:
    def resume(steps: float) -> float:
        """The step at which the run resumes."""
        return steps * epoch / plan.epochs

    def shorter(i: float, n: float) -> float:
        return law_factor(plan, i, resume(n) if i < resume(n) else n)

    def stretched(i: float, n: float) -> float:
        begin = resume(n)
        return law_factor(plan, i, n) if i < begin else law_factor(plan, i - begin, max(1.0, n - begin))

    def later(earlier: int, i: float, n: float) -> float:
        return law_factor(plan, i - n * earlier / plan.epochs if i >= resume(n) else i, n)

    return [
        (causes.SCHEDULE_OF_CUT_RUN(), Rules(factor=shorter)),
        (causes.SCHEDULE_OVER_REST(), Rules(factor=stretched)),
        (causes.SCHEDULE_BEHIND_AFTER_RESUME(), Rules(behind=True)),
        *((causes.SCHEDULE_OF_LAST_RUN_ONLY(), Rules(factor=partial(later, earlier))) for earlier in range(1, epoch)),
    ]
